"""`make campaign`: damaged files, hostile pickles and servers, and kills, each in a process of its own.

`python tests/campaign.py [--seconds N | --cases N] [--seed S] [--only NAME,NAME] [--case CASE] [--json]`

Every case is drawn by (seed, target, number), and runs in a forked child with 2 GiB of memory and
20 seconds more than this process has. Its outcome is one of

- done: the input was read, or the interrupted work ended as if nothing had happened;
- refused: one message of at most 5,000 characters, exit status 2;
- abort: polars cannot allocate what a damaged Parquet file asks for, and ends the process
  (docs/reliability.md); known, and counted apart;
- traceback, crash (ended by a signal), timeout, memory, wrong: failures. `wrong` is a torn file, a
  changed result, or bytes outside of where they belong.

The exit status is 1 where there is a failure.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import ctypes
import functools
import gzip
import io
import json
import os
import pickle
import pickletools
import platform
import random
import resource
import shutil
import signal
import sys
import tempfile
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

from wild_server import DEEDS, wild_server

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ["RUST_BACKTRACE"] = "0"

MEMORY = 2 << 30
SECONDS = 20
SLOW = {"written": 4, "finetune": 4, "together": 4}
"""Targets of several commands, and how many times as long they may take."""
LONGEST = 5_000
OUTCOMES = ("done", "refused", "abort", "traceback", "crash", "timeout", "memory", "wrong")
FAILURES = OUTCOMES[3:]

Act = Callable[[random.Random, Path], str]
"""A case: does its work in an empty folder, with the prepared files in ``../base``."""

TARGETS: dict[str, Act] = {}


def target(act: Act) -> Act:
    """Register a kind of case under the name of its function."""
    TARGETS[act.__name__] = act
    return act


class WrongError(Exception):
    """A result that must not be."""


# --- one case ------------------------------------------------------------------------------------


def in_child(act: Callable[[], str], out: Path, seconds: float = SECONDS) -> tuple[str, str]:
    """The outcome of ``act`` in a forked child, and what it said."""
    sys.stdout.flush()
    sys.stderr.flush()
    child = os.fork()
    if child == 0:
        status = 70
        try:
            _end_with_parent()
            _limit(seconds)
            with out.open("w", encoding="utf-8", errors="backslashreplace") as file:
                os.dup2(file.fileno(), 1)
                os.dup2(file.fileno(), 2)
                sys.stdout = sys.stderr = file
                status = _status(act)
        finally:
            os._exit(status)
    waited, last = 0.0, time.monotonic()
    while not (found := os.waitpid(child, os.WNOHANG))[0]:
        now = time.monotonic()
        waited += min(now - last, 0.1)  # not while both are stopped
        last = now
        if waited > seconds:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return "timeout", _said(out)
        time.sleep(0.002)
    said = _said(out)
    if os.WIFSIGNALED(found[1]):
        if os.WTERMSIG(found[1]) == signal.SIGXCPU:
            return "timeout", said
        is_known = "memory allocation of" in said
        return "abort" if is_known else "crash", f"signal {os.WTERMSIG(found[1])} {said}"
    return STATUS.get(os.WEXITSTATUS(found[1]), "crash"), said


def _end_with_parent() -> None:
    """Let a forked process end when the one that forked it does."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)


STATUS = {0: "done", 2: "refused", 1: "traceback", 3: "wrong", 4: "memory"}


def _status(act: Callable[[], str]) -> int:
    from consilience.errors import ConsilienceError

    try:
        print(act())
        return 0
    except ConsilienceError as error:
        print(error)
        return 2 if len(str(error)) <= LONGEST else 3
    except MemoryError:
        return 4
    except WrongError as error:
        print(error)
        return 3
    except BaseException:
        traceback.print_exc()
        return 1
    finally:
        sys.stdout.flush()


def _limit(seconds: float) -> None:
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY,) * 2)
    cpu = int(sum(resource.getrusage(resource.RUSAGE_SELF)[:2]) + seconds) + 1
    resource.setrlimit(resource.RLIMIT_CPU, (cpu, cpu + 5))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _said(out: Path) -> str:
    with contextlib.suppress(OSError), out.open(encoding="utf-8", errors="replace") as file:
        return file.read(4000)
    return ""


def command(*arguments: object) -> str:
    """``consilience ARGUMENTS`` in this process; one that fails without one message is wrong.

    So is one that prints what controls a terminal.
    """
    from consilience import cli
    from consilience.errors import ConsilienceError
    from consilience.text import CONTROLS

    said = io.StringIO()
    sys.argv = ["consilience", *map(str, arguments)]
    for console in _consoles():
        console.file = said
    try:
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            cli.main()
        status = 0
    except SystemExit as stop:
        status = int(stop.code or 0)
    text = said.getvalue()
    if CONTROLS.search(text):
        raise WrongError(f"controls the terminal: {text[:2000]!r}")
    messages = sum(line.startswith("error: ") for line in text.splitlines())
    if status == 0 and "Traceback" not in text:
        return f"exit 0, {len(text)} characters"
    if status == 2 and messages == 1 and len(text) <= LONGEST + 4000 * text.count("note: "):
        raise ConsilienceError(text[:LONGEST])
    raise WrongError(f"exit {status}, {messages} messages, {len(text)} characters: {text[:2000]}")


RUNS = (
    "pickle.find_class",
    "os.system",
    "os.exec",
    "os.posix_spawn",
    "os.spawn",
    "subprocess.Popen",
    "socket.connect",
)
"""Audit events of what no data may have done."""


@contextlib.contextmanager
def nothing_runs() -> Iterator[None]:
    """Wrong if what is read inside starts a program or opens a connection."""
    ran: list[str] = []
    is_inside = [True]

    def hook(event: str, arguments: tuple[object, ...]) -> None:
        is_version = event == "subprocess.Popen" and arguments[0] == "git"
        if is_inside and event in RUNS and not is_version:
            ran.append(f"{event} {arguments}"[:200])

    sys.addaudithook(hook)
    try:
        yield
    finally:
        is_inside.clear()
        if ran:
            raise WrongError(f"ran {ran}")


def _consoles() -> list[object]:
    from consilience.cli import shared

    return [shared.out, shared.err]


# --- what is damaged -----------------------------------------------------------------------------

NASTY = (
    b"[" * 100_000, b"9" * 5000, b"NaN", b"1e999", b"-1", b"null", b"true", b"[]", b"{}", b'""', b'"',
    b"\x00", b"\x1b[2J", b"\x1b]0;PWN\x07", b"\xed\xa0\x80", b"\xff\xfe", "\u202e".encode(), b"\\ud800",
    "\u2028".encode(), b"../../x", b"/etc/passwd", b"x" * 1_000_000, b"\r", b"\n", b"\t", b",", b";",
    b"MACRO", b"[X]", b"[Y]", b"\\u0000", b"1" * 400 + b".5", b'{"a":' * 50_000, b"=cmd|'/C calc'!A0",
)  # fmt: skip


def mutate(content: bytes, draw: random.Random) -> bytes:
    """Bytes changed, removed, inserted or repeated; once or a few times."""
    changed = bytearray(content)
    for _ in range(draw.choice((1, 1, 1, 2, 4, 16))):
        at = draw.randrange(len(changed) + 1)
        end = min(len(changed), at + draw.choice((1, 1, 4, 64, 4096)))
        kind = draw.random()
        if kind < 0.35 and at < len(changed):
            changed[at] = draw.choice((draw.randrange(256), changed[at] ^ 1 << draw.randrange(8)))
        elif kind < 0.5:
            del changed[at:end]
        elif kind < 0.75:
            changed[at:at] = draw.choice(NASTY)
        elif kind < 0.85:
            changed[at:at] = changed[at:end]
        elif kind < 0.95:
            changed[at:at] = bytes(draw.randrange(256) for _ in range(draw.randrange(1, 16)))
        else:
            del changed[at:]
    return bytes(changed)


VALUES = (
    None, True, 0, -1, 1e308, float("nan"), float("inf"), 10**30, "", " ", "x" * 100_000, "\x1b[2J", "\u202e",
    "\ud800", "../../x", "MACRO", [], {}, [None], {"a": []}, [[1]], "[X] [Y]", "strict", "perturb", "1e999",
)  # fmt: skip


def mutate_value(value: object, draw: random.Random) -> object:
    """A JSON value with one of its parts replaced, removed or added."""
    if isinstance(value, dict) and value and draw.random() < 0.85:
        name = draw.choice(list(value))
        rest = {other: each for other, each in value.items() if other != name}
        if draw.random() < 0.15:
            return rest
        return {**value, name: mutate_value(value[name], draw)}
    if isinstance(value, list) and value and draw.random() < 0.85:
        at = draw.randrange(len(value))
        if draw.random() < 0.15:
            return value[:at] + value[at + draw.randrange(2) :] + value[at : at + 1] * 2
        return [*value[:at], mutate_value(value[at], draw), *value[at + 1 :]]
    return draw.choice(VALUES)


def damage(path: Path, draw: random.Random) -> None:
    """Damage a file: its bytes, or a value, cell or row of what it holds."""
    content = path.read_bytes()
    by_value = {".json": _damage_json, ".jsonl": _damage_lines, ".csv": _damage_cells,
                ".tsv": _damage_cells}  # fmt: skip
    if draw.random() < 0.5 and path.suffix == ".parquet":
        _damage_table(path, draw)
    elif draw.random() < 0.5 and path.suffix in by_value:
        text = by_value[path.suffix](content.decode("utf-8-sig"), draw)
        path.write_bytes(text.encode(errors="surrogatepass"))
    else:
        path.write_bytes(mutate(content, draw))


def _damage_json(text: str, draw: random.Random) -> str:
    value = json.loads(text)
    for _ in range(draw.choice((1, 1, 2))):
        value = mutate_value(value, draw)
    return json.dumps(value)


def _damage_lines(text: str, draw: random.Random) -> str:
    lines = text.splitlines()
    at = draw.randrange(len(lines))
    lines[at] = json.dumps(mutate_value(json.loads(lines[at]), draw))
    return "\n".join(lines)


def _damage_cells(text: str, draw: random.Random) -> str:
    separator = "\t" if "\t" in text.partition("\n")[0] else ","
    rows = list(csv.reader(io.StringIO(text), delimiter=separator))
    for _ in range(draw.choice((1, 1, 3))):
        row = draw.choice(rows)
        if row:
            row[draw.randrange(len(row))] = str(draw.choice(VALUES))
        if draw.random() < 0.2:
            rows.append(list(row))
    written = io.StringIO()
    csv.writer(written, delimiter=separator).writerows(rows)
    return written.getvalue()


def _damage_table(path: Path, draw: random.Random) -> None:
    import polars as pl

    table, metadata = pl.read_parquet(path), pl.read_parquet_metadata(path)
    name = draw.choice(table.columns)
    type_ = draw.choice((pl.String, pl.Int64, pl.Null))
    value = draw.choice((7, 1.5, "x", "", True, float("nan")))
    changes = (
        lambda: table.drop(name),
        lambda: table.with_columns(pl.lit(None, type_).alias(name)),
        lambda: table.with_columns(pl.lit(value).alias(name)),
        lambda: pl.concat([table, table.head(draw.randrange(1, 9))]),
        lambda: table.head(draw.randrange(3)),
        lambda: table.with_columns(pl.concat_list(pl.col(name)).alias(name)),
        lambda: table.rename({name: draw.choice(("x", "scores", "subset", ""))}),
    )
    table = draw.choice(changes)()
    metadata = {key: value for key, value in metadata.items() if key != "ARROW:schema"}
    table.write_parquet(path, metadata=metadata if draw.random() < 0.8 else {})


def damaged(draw: random.Random, folder: Path, name: str) -> Path:
    """A copy of a prepared file or folder, with one of its files damaged."""
    copy = folder / name
    source = folder.parent / "base" / name
    if source.is_file():
        shutil.copy(source, copy)
        damage(copy, draw)
        return copy
    shutil.copytree(source, copy)
    files = sorted(path for path in copy.rglob("*") if path.is_file())
    files += [path for path in files if path.name == "run.json"] * 3  # which every command reads
    path = draw.choice(files)
    damage(path, draw)
    if path.suffix == ".parquet" and draw.random() < 0.7:  # what was changed is vouched for
        from consilience.run_folder import digest_of

        file = path.parent.parent / "run.json"
        record = json.loads(file.read_bytes())
        record["answers"][path.stem] = digest_of(path)
        file.write_text(json.dumps(record))
    return copy


# --- the prepared files --------------------------------------------------------------------------

DATA = Path(__file__).parent / "data" / "campaign"
"""A suite, LAMA's layout, a graph, a task, its pairs, annotated sheets and typed tables."""


def prepare(base: Path) -> str:
    """Write the files that the cases damage."""
    shutil.copytree(DATA, base)
    suite = base / "suite"
    command("probe", "--model", "baseline:majority", "--suite", suite, "--out", base / "run")
    import polars as pl

    from consilience.run import read_answers

    answers = read_answers(base / "run")
    answers.write_parquet(base / "answers.parquet")
    answers.write_csv(base / "answers.csv")
    (base / "answers.csv.gz").write_bytes(gzip.compress((base / "answers.csv").read_bytes()))
    pairs = [json.loads(line) for line in (base / "pairs.jsonl").read_text().splitlines()]
    pl.DataFrame(pairs).write_parquet(base / "pairs.parquet")
    command("probe", "--model", "baseline:random", "--suite", suite, "--out", base / "random")
    _prepare_models(base)
    return "prepared"


def _prepare_models(base: Path) -> None:
    """Tiny models of every kind that is read, runs and records of them."""
    from conftest import build_model
    from test_gguf import write_gguf
    from test_perturb import save_classifier

    os.environ["CONSILIENCE_CACHE"] = str(base / "cache")
    build_model("bert", base / "masked")
    build_model("gpt2", base / "causal")
    for seed in (0, 1):
        save_classifier(base / "seeds" / f"seed-{seed}" / "mrpc", seed=seed)
    shutil.copytree(base / "seeds" / "seed-0" / "mrpc", base / "classifier")
    command("probe", "--model", base / "seeds", "--suite", "mrpc", "--data", base / "pairs.jsonl",
            "--out", base / "perturbed")  # fmt: skip
    write_gguf(base / "tiny.gguf", base / "causal")
    _probe_gguf(base, base / "gguf")
    _finetune(base / "trained", base)


# --- the readers ---------------------------------------------------------------------------------


@target
def suite(draw: random.Random, folder: Path) -> str:
    from consilience import load_suite
    from consilience.suites import check_suite
    from consilience.suites.sizes import cautions, suite_statistics

    place = str(damaged(draw, folder, "suite"))
    problems = check_suite(place)
    if any(len(str(problem)) > LONGEST for problem in problems):
        raise WrongError("a long message")
    found = load_suite(place)
    if problems:
        raise WrongError(f"loaded in spite of {problems[0]}")
    found.digest.encode()
    cautions(found)
    suite_statistics(found)
    _ask(place, folder)
    return f"{len(found.relations)} relations"


def _ask(suite: str, folder: Path) -> None:
    """Ask a suite; nothing is written beside the run."""
    before = {*folder.parent.rglob("*")}
    out = folder / "run"
    command("probe", "--model", "baseline:majority", "--suite", suite, "--out", out)
    if beside := [path for path in {*folder.parent.rglob("*")} - before
                  if not path.is_relative_to(out)]:  # fmt: skip
        raise WrongError(f"wrote {beside}")


@target
def lama(draw: random.Random, folder: Path) -> str:
    from consilience import load_suite

    place = str(damaged(draw, folder, "lama"))
    found = load_suite(place)
    _ask(place, folder)
    return found.digest


@target
def graph(draw: random.Random, folder: Path) -> str:
    from consilience.suites.graphs import read_graph

    with nothing_runs():
        return f"{len(read_graph(damaged(draw, folder, 'P1.graph'))[0])} patterns"


OPCODES = [opcode for opcode in pickletools.opcodes if opcode.name != "STOP"]
TEXTS = (b"os\nsystem\n", b"builtins\neval\n", b"builtins\ndict\n", b"networkx.classes.digraph\nDiGraph\n",
         b"pararel.patterns.graph_types\nPatternNode\n")  # fmt: skip


@target
def opcodes(draw: random.Random, folder: Path) -> str:
    """A pickle of random opcodes, some of them thousands of times; nothing of it may run."""
    from consilience.suites.graphs import read_graph

    program = bytearray(b"\x80\x03" if draw.random() < 0.5 else b"")
    for _ in range(draw.randrange(1, 40)):
        opcode = draw.choice(OPCODES)
        piece = opcode.code.encode("latin-1")
        if opcode.name in ("GLOBAL", "INST"):
            piece += draw.choice(TEXTS)
        elif opcode.arg is not None:
            size = opcode.arg.n if opcode.arg.n > 0 else draw.choice((1, 2, 5))
            value = draw.choice((0, 1, 255, 1 << 28, (1 << 31) - 1)) & (1 << 8 * size) - 1
            piece += draw.choice(
                (value.to_bytes(size, "little"), b"1\n", b"os system\n", os.urandom(0))
            )
        program += piece * draw.choice((1, 1, 1, 1, 2, 100_000 if len(piece) == 1 else 100))
    path = folder / "P1.graph"
    path.write_bytes(bytes(program) + b".")
    with nothing_runs():
        read_graph(path)
    return "read"


@target
def task(draw: random.Random, folder: Path) -> str:
    from consilience.suites.tasks import load_task

    return load_task(str(damaged(draw, folder, "task.toml"))).name


@target
def pairs(draw: random.Random, folder: Path) -> str:
    from consilience.suites.pairs import read_pairs
    from consilience.suites.tasks import load_task

    suffix = draw.choice(("tsv", "csv", "json", "jsonl", "parquet"))
    path = damaged(draw, folder, f"pairs.{suffix}")
    return read_pairs(str(path), load_task("rte")).digest


@target
def sheets(draw: random.Random, folder: Path) -> str:
    from consilience.authoring.annotation_scores import score_sheets

    return f"{score_sheets(damaged(draw, folder, 'sheets')).metrics.height} numbers"


COMMANDS = {
    "answers": ("score PLACE --suite BASE/suite",),
    "table": ("analyze tasks PLACE",),
    "run": (
        "score PLACE --suite BASE/suite",
        "compare BASE/run PLACE",
        "compare PLACE BASE/run",
        "analyze patterns PLACE",
        "analyze examples PLACE",
        "analyze edits PLACE",
        "analyze knowledge PLACE BASE/run",
        "report PLACE --out FOLDER/r.html",
        "probe --model baseline:majority --suite BASE/suite --out PLACE",
    ),
    "perturbed": (
        "compare BASE/perturbedINNER PLACEINNER",
        "compare PLACEINNER BASE/perturbedINNER",
        "report PLACEINNER --out FOLDER/r.html",
        "report BASE/perturbedINNER PLACEINNER --out FOLDER/r.html",
        "analyze tasks PLACEINNER",
        "score PLACEINNER --suite BASE/suite",
        "analyze patterns PLACEINNER",
        "probe --model BASE/seeds --suite mrpc --data BASE/pairs.jsonl --out PLACE",
    ),
    "gguf": ("probe --model PLACE --suite BASE/suite --groups capital --limit 2 --out FOLDER/run",),
}
"""Commands that read what is damaged (PLACE), of a run of several seeds perhaps one (INNER)."""


def run_one(draw: random.Random, folder: Path, name: str, place: Path) -> tuple[str, str]:
    """Run one of the commands of a target: its name, and what it said."""
    names = {"BASE": str(folder.parent / "base"), "FOLDER": str(folder), "PLACE": str(place)}
    names["INNER"] = draw.choice(("", "/seed-0"))
    line = draw.choice(COMMANDS[name])
    arguments = line.split()
    for old, new in names.items():
        arguments = [argument.replace(old, new) for argument in arguments]
    print(*arguments, flush=True)
    return arguments[0], command(*arguments)


@target
def answers(draw: random.Random, folder: Path) -> str:
    """An answers table of somebody else, scored."""
    name = draw.choice(("answers.csv", "answers.csv.gz", "answers.parquet"))
    return run_one(draw, folder, "answers", damaged(draw, folder, name))[1]


@target
def run(draw: random.Random, folder: Path) -> str:
    """A run folder: scored, compared, analysed. Answers that nothing vouches for are refused."""
    place, whole = damaged(draw, folder, "run"), folder.parent / "base" / "run"
    changed = [path for path in (place / "answers").iterdir()
               if path.read_bytes() != (whole / "answers" / path.name).read_bytes()]  # fmt: skip
    digests = json.loads((whole / "run.json").read_bytes())["answers"]
    is_unseen = bool(changed) and digests == _digests(place)
    name, said = run_one(draw, folder, "run", place)
    if is_unseen and name != "probe":
        raise WrongError(f"counted {changed}")
    return said


def _digests(run: Path) -> object:
    with contextlib.suppress(ValueError, TypeError, KeyError):
        return json.loads((run / "run.json").read_bytes())["answers"]
    return None


@target
def perturbed(draw: random.Random, folder: Path) -> str:
    """A run of perturb, of one seed or two, and what is typed of such runs."""
    return run_one(draw, folder, "perturbed", damaged(draw, folder, "perturbed"))[1]


@target
def table(draw: random.Random, folder: Path) -> str:
    """Tables of numbers that somebody typed."""
    name = draw.choice(("long.csv", "wide.csv"))
    return run_one(draw, folder, "table", damaged(draw, folder, name))[1]


@target
def training(draw: random.Random, folder: Path) -> str:
    """The records of trainings."""
    from consilience.train.resume import TrainingFolder

    damaged(draw, folder, "training.json")
    training = TrainingFolder(folder, {"model": "m", "plan": {"epochs": 3}})
    return f"finished: {training.is_finished()}, {training.result(('epochs',), ('rte',))}"


@target
def parquet(draw: random.Random, folder: Path) -> str:
    """Bytes of a Parquet file, which polars decodes outside of Python."""
    from consilience.run import read_answers

    path = folder / "answers.parquet"
    content = (folder.parent / "base" / "answers.parquet").read_bytes()
    footer = int.from_bytes(content[-8:-4], "little")
    changed = bytearray(content)
    for _ in range(draw.choice((1, 1, 2, 4))):
        first = len(content) - 8 - footer if draw.random() < 0.5 else 0
        at = draw.randrange(first, len(content))
        changed[at] = draw.choice((draw.randrange(256), changed[at] ^ 1 << draw.randrange(8)))
    path.write_bytes(changed)
    return f"{read_answers(path).height} rows"


# --- models --------------------------------------------------------------------------------------

EVIL = """from pathlib import Path
Path({!r}).touch()
"""

TEMPLATES = (
    "{{ cycler.__init__.__globals__.os.popen('id').read() }}",
    "{{ ''.__class__.__mro__[1].__subclasses__() }}",
    "{{ raise_exception('no') }}", "{% for", "{{ messages[9] }}", "{{ 1 / 0 }}", "", "\x1b[2J",
    "{% for _ in range(10 ** 9) %}x{% endfor %}", "{{ messages[0]['content'] }}", "{{ 'x' * 10 ** 4 }}",
)  # fmt: skip


@target
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


@target
def gguf(draw: random.Random, folder: Path) -> str:
    """A damaged GGUF file."""
    path = damaged(draw, folder, "tiny.gguf")
    os.environ["CONSILIENCE_CACHE"] = draw.choice(("off", str(folder / "cache")))
    return run_one(draw, folder, "gguf", path)[1]


@target
def cache(draw: random.Random, folder: Path) -> str:
    """A damaged file in the cache: the answers are the same, or there is a message."""
    base, place = folder.parent / "base", damaged(draw, folder, "cache")
    os.environ["CONSILIENCE_CACHE"] = str(place)
    said = _probe_gguf(base, folder / "run")
    _same_answers(folder / "run", base / "gguf")
    return said


@target
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
                _end_with_parent()
                time.sleep(draw.random() * 0.2)
                _probe_gguf(base, folder / f"run-{at}")
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
    _probe_gguf(base, folder / "again")
    _same_answers(folder / "again", base / "gguf")
    return f"killed: {killed}"


def _probe_gguf(base: Path, place: Path) -> str:
    return command("probe", "--model", base / "tiny.gguf", "--suite", base / "suite", "--groups",
                   "capital", "--limit", 2, "--out", place)  # fmt: skip


def _same_answers(place: Path, other: Path) -> None:
    from consilience.run import read_answers

    if not read_answers(place).equals(read_answers(other), null_equal=True):
        raise WrongError("other answers")


# --- servers -------------------------------------------------------------------------------------

LISTED = {"a/one.txt": b"first file\n" * 400, "two.txt": b"second\n"}


@target
def server(draw: random.Random, folder: Path) -> str:
    """A server that answers as it likes: files are whole and right, or absent; then an honest one."""
    import hashlib

    from consilience.suites import fetch as module

    module.SILENCE = 0.4
    module.listing = lambda name: [
        module.ReleasedFile(path, len(content), hashlib.sha256(content).hexdigest())
        for path, content in LISTED.items()
    ]
    honest = threading.Event()
    deeds = ("right",) * len(DEEDS) + DEEDS
    url = wild_server(LISTED, lambda: "right" if honest.is_set() else draw.choice(deeds))
    began, problem = time.monotonic(), None
    try:
        module.fetch("pararel", folder / "data", base=url)
    except module.ConsilienceError as error:
        problem = error
    if time.monotonic() - began > 6:
        raise WrongError(f"{time.monotonic() - began:.1f} seconds")
    for path in (folder / "data").rglob("*"):
        name = path.relative_to(folder / "data" / "pararel").as_posix()
        if path.is_file() and path.suffix == ".part":
            if path.stat().st_size > len(LISTED[name.removesuffix(".part")]) + 1:
                raise WrongError(f"{path.stat().st_size} bytes of {name}")
        elif path.is_file() and path.read_bytes() != LISTED[name]:
            raise WrongError(f"another {name}")
    honest.set()
    module.fetch("pararel", folder / "data", base=url)
    found = {path.relative_to(folder / "data" / "pararel").as_posix(): path.read_bytes()
             for path in (folder / "data").rglob("*") if path.is_file()}  # fmt: skip
    if found != LISTED:
        raise WrongError(f"an honest server, and {sorted(found)}")
    if problem:
        raise problem
    return "fetched"


# --- kills ---------------------------------------------------------------------------------------


def _probe(place: Path, base: Path) -> str:
    return command(
        "probe", "--model", "baseline:majority", "--suite", base / "suite", "--out", place
    )


def _whole(place: Path, base: Path) -> None:
    """Every file of a run that was killed is whole, and is what the uninterrupted run has."""
    for path in place.rglob("*"):
        other = base / "run" / path.relative_to(place)
        if not path.is_file() or path.suffix == ".part":
            continue
        if path.name == "run.json":
            json.loads(path.read_bytes())
        elif path.read_bytes() != other.read_bytes():
            raise WrongError(f"{path.name} is torn or another")


def _resumed(place: Path, base: Path) -> str:
    _whole(place, base)
    _probe(place, base)
    _whole(place, base)
    names = {path.relative_to(place) for path in place.rglob("*")}
    expected = {path.relative_to(base / "run") for path in (base / "run").rglob("*")}
    if names != expected:
        raise WrongError(f"other files: {sorted(map(str, names ^ expected))}")
    return "resumed"


def _steps(count: int) -> Callable[[str, tuple[object, ...]], None]:
    """An audit hook that kills this process before its ``count``th change of a file."""
    seen = 0

    def hook(event: str, arguments: tuple[object, ...]) -> None:
        nonlocal seen
        is_write = event == "open" and isinstance(arguments[2], int) and arguments[2] & (
            os.O_WRONLY | os.O_RDWR
        )  # fmt: skip
        if is_write or event in ("os.rename", "os.remove", "os.mkdir", "os.truncate", "os.chmod"):
            seen += 1
            if seen == count:
                os.kill(os.getpid(), signal.SIGKILL)

    return hook


def _killed(act: Callable[[], object], out: Path, after: float | None = None) -> bool:
    """Whether a forked child was killed, by itself or ``after`` seconds."""
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        try:
            _end_with_parent()
            with out.open("w") as file:
                os.dup2(file.fileno(), 1)
                os.dup2(file.fileno(), 2)
                act()
        finally:
            os._exit(0)
    if after is not None:
        time.sleep(after)
        os.kill(child, signal.SIGKILL)
    return os.WIFSIGNALED(os.waitpid(child, 0)[1])


@target
def kill(draw: random.Random, folder: Path) -> str:
    """A probe that is killed at random, up to three times, and resumed."""
    base, place = folder.parent / "base", folder / "run"
    for number in range(draw.randrange(1, 4)):
        after = draw.random() * 0.4
        _killed(lambda: _probe(place, base), folder / f"out{number}", after)
        _whole(place, base)
    return _resumed(place, base)


@target
def write_step(draw: random.Random, folder: Path) -> str:
    """A probe that is killed before one of its changes of files, and resumed."""
    base, place = folder.parent / "base", folder / "run"
    count = draw.randrange(1, 60)

    def work() -> None:
        sys.addaudithook(_steps(count))
        _probe(place, base)

    is_killed = _killed(work, folder / "out")
    return f"step {count}: {'killed' if is_killed else 'ended before'}, {_resumed(place, base)}"


@target
def written(draw: random.Random, folder: Path) -> str:
    """A command that is killed while it writes: each file is whole or absent, and then as usual."""
    base, whole, place = folder.parent / "base", folder / "whole", folder / "place"
    name, arguments = draw.choice((
        ("m.csv", ("score", base / "answers.csv", "--suite", base / "suite")),
        ("m.csv", ("compare", base / "run", base / "random")),
        ("m.csv", ("analyze", "patterns", base / "run")),
        ("r.html", ("report", base / "run")),
        ("sheets", ("annotate", "sheet", "--task", "rte", "--data", base / "pairs.csv")),
    ))  # fmt: skip
    for each in (whole, place):
        each.mkdir()
    count = draw.randrange(1, 12)

    def work(out: Path, steps: int) -> None:
        if steps:
            sys.addaudithook(_steps(steps))
        command(*arguments, "--out", out)

    # A process each: the threads of polars do not outlive a fork.
    _killed(lambda: work(whole / name, 0), folder / "out")
    is_killed = _killed(lambda: work(place / name, count), folder / "out")
    _same_files(place, whole, complete=False)
    if name == "sheets":  # they are drawn into a new folder
        shutil.rmtree(place / name, ignore_errors=True)
    _killed(lambda: work(place / name, 0), folder / "out")
    _same_files(place, whole, complete=True)
    return f"{arguments[0]}, step {count}: {'killed' if is_killed else 'ended before'}"


def _same_files(place: Path, whole: Path, *, complete: bool) -> None:
    files = {path.relative_to(place): path.read_bytes() for path in place.rglob("*")
             if path.is_file() and path.suffix != ".part"}  # fmt: skip
    other = {path.relative_to(whole): path.read_bytes() for path in whole.rglob("*")
             if path.is_file()}  # fmt: skip
    torn = [path for path, content in files.items() if other.get(path) != content]
    if torn or (complete and files.keys() != other.keys()):
        raise WrongError(f"torn {torn}, of {sorted(other)} there are {sorted(files)}")


@target
def finetune(draw: random.Random, folder: Path) -> str:
    """A training that is killed at random and resumed: the weights of an unbroken one."""
    base, place = folder.parent / "base", folder / "trained"
    for number in range(draw.randrange(1, 3)):
        after = draw.random() * 2
        _killed(lambda: _finetune(place, base), folder / f"out{number}", after)
    _finetune(place, base)
    for path in (base / "trained").rglob("*"):
        own = place / path.relative_to(base / "trained")
        if (
            path.is_file()
            and path.name != "training.json"
            and path.read_bytes() != own.read_bytes()
        ):
            raise WrongError(f"another {path.name}")
    if {*place.rglob("*checkpoint*"), *place.rglob("*.part")}:
        raise WrongError(f"left {[*place.rglob('*')]}")
    return "the same weights"


def _finetune(place: Path, base: Path) -> str:
    return command("finetune", "--model", base / "masked", "--task", "mrpc", "--train",
                   base / "train.jsonl", "--validation", base / "train.jsonl", "--epochs", 4,
                   "--batch", 4, "--lr", "1e-3", "--seeds", 0, "--out", place)  # fmt: skip


# --- the campaign --------------------------------------------------------------------------------


def load() -> None:
    """Import once, before any fork, what the cases use; nothing of it may start a thread."""
    os.environ["OMP_NUM_THREADS"] = "1"
    import torch
    import transformers  # noqa: F401

    import consilience.authoring.annotation_scores
    import consilience.cli
    import consilience.models.classifier
    import consilience.models.loading
    import consilience.train.seeds  # noqa: F401

    torch.set_num_threads(1)


def campaign(
    seed: str, *, cases: int | None, seconds: float | None, only: list[str], first: int = 0
) -> tuple[dict[str, Counter[str]], list[dict[str, str]]]:
    """How often each target had each outcome, and every failure."""
    load()
    counts: dict[str, Counter[str]] = {name: Counter() for name in only}
    failures = []
    ends = time.monotonic() + seconds if seconds else None
    with tempfile.TemporaryDirectory() as place:
        os.chdir(place)
        base = Path(place) / "base"
        outcome, said = in_child(lambda: prepare(base), Path(place) / "out", 120)
        if outcome != "done":
            raise SystemExit(f"the files cannot be prepared: {outcome} {said}")
        number = first
        while (ends is None or time.monotonic() < ends) and (
            cases is None or number < first + cases
        ):
            for name in only:
                folder = Path(place) / "case"
                folder.mkdir()
                draw = random.Random(f"{seed}:{name}:{number}")
                case = functools.partial(TARGETS[name], draw, folder)
                seconds = SECONDS * SLOW.get(name, 1)
                outcome, said = in_child(case, Path(place) / "out", seconds)
                counts[name][outcome] += 1
                if outcome in FAILURES:
                    failures.append(
                        {
                            "case": f"{seed}:{name}:{number}",
                            "outcome": outcome,
                            "said": said[-1500:],
                        }
                    )
                shutil.rmtree(folder)
            number += 1
        os.chdir("/")
    return counts, failures


def main() -> None:
    """Run a campaign and print what came of it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, help="run for so long")
    parser.add_argument("--cases", type=int, help="cases of each target [default: 20]")
    parser.add_argument("--seed", default="0")
    parser.add_argument("--only", default=",".join(TARGETS), help="targets, with commas between")
    parser.add_argument("--case", help="only this one, as a failure names it: SEED:TARGET:NUMBER")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    cases = given.cases if given.cases or given.seconds else 20
    first = 0
    if given.case:
        given.seed, given.only, number = given.case.split(":")
        first, cases = int(number), 1
    began = time.monotonic()
    counts, failures = campaign(
        given.seed, cases=cases, seconds=given.seconds, only=given.only.split(","), first=first
    )
    took = time.monotonic() - began
    if given.json:
        document = {
            "counts": {name: dict(each) for name, each in counts.items()},
            "failures": failures,
        }
        print(json.dumps(document))
    else:
        print(f"{'target':12}{'cases':>8}" + "".join(f"{name:>11}" for name in OUTCOMES))
        for name, each in [*counts.items(), ("all", sum(counts.values(), Counter()))]:
            cells = "".join(f"{each[outcome] or '.':>11}" for outcome in OUTCOMES)
            print(f"{name:12}{each.total():>8}{cells}")
        for failure in failures:
            print(f"\n{failure['case']}: {failure['outcome']}\n{failure['said']}")
        print(f"\nseed {given.seed}, {took:.0f} s, {platform.platform()}, {os.cpu_count()} cores")
    sys.exit(bool(failures))


if __name__ == "__main__":
    main()
