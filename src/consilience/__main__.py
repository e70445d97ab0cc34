"""``python -m consilience``."""

from consilience.cli import command

if __name__ == "__main__":
    command()
