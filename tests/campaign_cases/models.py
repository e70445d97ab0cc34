"""Cases of models: damaged and hostile folders, GGUF files, and the cache."""

from __future__ import annotations

import json
import os
import pickle
import random
import shutil
import signal
import time
import traceback
from pathlib import Path

from campaign_cases.child import WrongError, alone, command, end_with_parent, nothing_runs
from campaign_cases.damage import damaged, mutate, mutate_value
from campaign_cases.files import probe_gguf
from campaign_cases.readers import run_one

EVIL = """from pathlib import Path
Path({!r}).touch()
"""

TEMPLATES = (
    "{{ cycler.__init__.__globals__.os.popen('id').read() }}",
    "{{ ''.__class__.__mro__[1].__subclasses__() }}",
    "{{ raise_exception('no') }}", "{% for", "{{ messages[9] }}", "{{ 1 / 0 }}", "", "\x1b[2J",
    "{% for _ in range(10 ** 9) %}x{% endfor %}", "{{ messages[0]['content'] }}", "{{ 'x' * 10 ** 4 }}",
)  # fmt: skip


@alone
def model(draw: random.Random, folder: Path) -> str:
    """A damaged or hostile folder of a masked or causal model, or of a classifier."""
    base, name = folder.parent / "base", draw.choice(("masked", "causal", "classifier"))
    place, ran = folder / name, folder / "ran"
    kind = draw.choice(("damaged", "damaged", "damaged", "weights", "pickle", "code", "template"))
    if kind == "damaged":
        damaged(draw, folder, name)
    else:
        shutil.copytree(base / name, place)
    if kind == "weights":
        _damage_weights(place / "model.safetensors", draw)
    elif kind == "pickle":
        (place / "model.safetensors").unlink()
        (place / "pytorch_model.bin").write_bytes(pickle.dumps(Touches(ran), protocol=2))
    elif kind == "code":
        (place / "evil.py").write_text(EVIL.format(str(ran)))
        path = place / draw.choice(("config.json", "tokenizer_config.json"))
        config = json.loads(path.read_bytes())
        kinds = ("AutoConfig", "AutoTokenizer", "AutoModelForMaskedLM", "AutoModelForCausalLM")
        config |= {"auto_map": dict.fromkeys(kinds, "evil.Evil")}
        if draw.random() < 0.5:
            config |= {"model_type": "evil", "tokenizer_class": "Evil"}
        path.write_text(json.dumps(config))
    elif kind == "template":
        (place / "chat_template.jinja").write_text(draw.choice(TEMPLATES))
    of_pairs = ("probe", "--suite", "mrpc", "--data", base / "pairs.jsonl")
    of_facts = ("probe", "--suite", base / "suite", "--groups", "capital", "--limit", 2)
    is_writer = name == "causal" and kind == "template"
    arguments = of_pairs if name == "classifier" or is_writer else of_facts
    arguments += ("--generate",) if is_writer else ()
    print(name, kind, flush=True)
    os.environ["CONSILIENCE_CACHE"] = str(folder / "cache")
    with nothing_runs():
        said = command(*arguments, "--model", place, "--out", folder / "run")
    if ran.exists():
        raise WrongError("the code of the model ran")
    return said


class Touches:
    """An object whose pickle makes a file when it is loaded."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, ...]:
        return os.system, (f"touch {self.path}",)


def _damage_weights(path: Path, draw: random.Random) -> None:
    """Damage the header of a safetensors file, as JSON or as bytes."""
    content = path.read_bytes()
    size = int.from_bytes(content[:8], "little")
    header, rest = content[8 : 8 + size], content[8 + size :]
    if draw.random() < 0.5:
        header = json.dumps(mutate_value(json.loads(header), draw)).encode()
    else:
        header = mutate(header, draw)
    size = draw.choice((len(header), len(header), len(header), 1 << 63, 0, len(header) + 7))
    path.write_bytes(size.to_bytes(8, "little") + header + rest)


@alone
def gguf(draw: random.Random, folder: Path) -> str:
    """A damaged GGUF file."""
    path = damaged(draw, folder, "tiny.gguf")
    os.environ["CONSILIENCE_CACHE"] = draw.choice(("off", str(folder / "cache")))
    return run_one(draw, folder, "gguf", path)[1]


@alone
def cache(draw: random.Random, folder: Path) -> str:
    """A damaged file in the cache: the answers are the same, or there is a message."""
    base, place = folder.parent / "base", damaged(draw, folder, "cache")
    os.environ["CONSILIENCE_CACHE"] = str(place)
    said = probe_gguf(base, folder / "run")
    _same_answers(folder / "run", base / "gguf")
    return said


@alone
def together(draw: random.Random, folder: Path) -> str:
    """Processes that expand a GGUF file at once, one of which may be killed."""
    base = folder.parent / "base"
    os.environ["CONSILIENCE_CACHE"] = str(folder / "cache")
    children, killed = [], draw.random() < 0.5
    for at in range(3):
        child = os.fork()
        if child == 0:
            status = 1
            try:
                end_with_parent()
                time.sleep(draw.random() * 0.2)
                probe_gguf(base, folder / f"run-{at}")
                _same_answers(folder / f"run-{at}", base / "gguf")
                status = 0
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(status)
        children.append(child)
    if killed:
        time.sleep(draw.random() * 0.8)
        os.kill(children[0], signal.SIGKILL)
    ends = [os.waitpid(child, 0)[1] for child in children]
    if any(ends[killed:]):
        raise WrongError(f"ended with {ends}")
    kept = [path.name for path in (folder / "cache").glob("weights-*/")]
    left = [path.name for path in (folder / "cache").glob(".weights-*/")]
    if len(kept) != 1 or len(left) > killed:
        raise WrongError(f"the cache holds {kept}, {left}")
    probe_gguf(base, folder / "again")
    _same_answers(folder / "again", base / "gguf")
    return f"killed: {killed}"


def _same_answers(place: Path, other: Path) -> None:
    from consilience.runs.run import read_answers

    if not read_answers(place).equals(read_answers(other), null_equal=True):
        raise WrongError("other answers")
