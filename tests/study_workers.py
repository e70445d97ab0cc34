"""Workers of studies that die, for ``test_study.py``; a new process imports them from here."""

import os
import signal

from consilience.workflow.study_worker import ask_runs


def dies(runs, log, connection):
    """As ``ask_runs``, but the process is killed while the suite "deadly" is asked."""
    if runs[0].suite != "deadly":
        ask_runs(runs, log, connection)
        return
    connection.send(("begin", runs[0].name))
    os.kill(os.getpid(), signal.SIGKILL)


def leaves(runs, log, connection):
    """The process ends before anything is asked, and prints something."""
    log.parent.mkdir(parents=True, exist_ok=True)
    log.write_text("no room\n", encoding="utf-8")
    os._exit(3)
