"""Trainings in two processes (`accelerate launch`) end as those in one."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import test_finetune
import test_improve
from test_finetune import TWO

LAUNCHER = """
import ast, gc, os, socket, sys
from pathlib import Path
code = ast.parse(Path(sys.argv[1]).read_text())
lines = {True: [], False: []}
for line in code.body:
    lines[isinstance(line, ast.ImportFrom)].append(line)
gc.disable()
exec(compile(ast.Module(lines[True], []), "imports", "exec"))
gc.freeze()  # or each process copies what it looks through for garbage
gc.enable()
with socket.socket() as free:
    free.bind(("127.0.0.1", 0))
    port = str(free.getsockname()[1])
code = compile(ast.Module(lines[False], []), "code", "exec")
children = []
for rank in ("0", "1"):
    children.append(os.fork())
    if not children[-1]:
        os.environ |= {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"}
        os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
        exec(code)
        sys.exit()
if any([os.waitpid(child, 0)[1] for child in children]):
    sys.exit(1)
"""
"""All processes are forks of one that has imported what they need, which takes less time."""

TRAININGS = """
from test_finetune import TWO, train as finetune
from test_train import train as improve
folder, model = Path({folder!r}), {model!r}
done = finetune(model, folder / "finetune", TWO, epochs=2, batch_size=5)
sys.stdout.write("finetuned " + str(done["validation"]) + chr(10))  # one write: the pipe is shared
plan = dict(epochs=1, loss="vote", device="cpu")
done = "measured" if improve(model, folder / "improve", **plan) else "trained"
sys.stdout.write("improved " + done + chr(10))
"""


@pytest.fixture(scope="module")
def launched(calm_folder, tmp_path_factory):
    """The model, the folder and the printed lines of trainings in two processes."""
    model, folder = calm_folder("bert"), tmp_path_factory.mktemp("two")
    script = folder / "script.py"
    script.write_text(TRAININGS.format(folder=str(folder), model=str(model)))
    paths = [str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]
    done = subprocess.run(
        [sys.executable, "-c", LAUNCHER, str(script)], capture_output=True, text=True, timeout=240,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(paths)}, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return model, folder, sorted(done.stdout.splitlines())


def test_a_finetuning_ends_with_the_same_weights(launched, tmp_path):
    """Batches of 5, the last of 1 and 2; there is no dropout. Both processes know the result."""
    model, folder, lines = launched
    one = test_finetune.train(model, tmp_path, TWO, epochs=2, batch_size=5)
    assert lines[:2] == [f"finetuned {one['validation']}"] * 2
    for task in ("rte", "mnli"):
        test_finetune.assert_same(tmp_path / task, folder / "finetune" / task)


def test_a_consistency_training_ends_with_the_same_weights(launched, tmp_path):
    """One relation each, in both stages of a vote; the first process measures."""
    model, folder, lines = launched
    assert lines[2:] == ["improved measured", "improved trained"]
    test_improve.train(model, tmp_path, epochs=1, loss="vote")
    test_improve.assert_same(tmp_path, folder / "improve", 1e-5)
