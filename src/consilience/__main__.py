"""``python -m consilience``."""

from consilience.app.process import run_process

if __name__ == "__main__":
    run_process()
