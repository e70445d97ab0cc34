"""Freeze results, so that a change can be shown to change no number but those that it means.

``python bench/freeze.py record OUT [NAME ...]`` runs commands of the installed revision and keeps
their results in OUT; of the names, such as ``'*mini*'``, only these and the runs that they read.
``python bench/freeze.py compare BEFORE AFTER`` lists every value that differs, how many bounds of
intervals are about the same, and what else differs. BEFORE may have the rows of revision cfde4529
(``subset``, MACRO, MICRO). To record another revision, set ``PYTHONPATH`` to its ``src``. ParaRel,
GLUE and a masked model are read from ``../shared`` or ``CONSILIENCE_SHARED``, where they are. Of a
name that ends with .txt the printed text is kept, of others the JSON document.
"""

from __future__ import annotations

import difflib
import json
import math
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import polars as pl

ROOT = Path(__file__).parents[1]
SHARED = Path(os.environ.get("CONSILIENCE_SHARED", ROOT.parent / "shared")).resolve()

WORDS = {
    "ASK": "probe --model packaged:smollm2 --limit 1 --suite",
    "SOME": "mini-questions --groups capital,sport",
    "OPEN": "mini-open --groups capital --match contains",
    "RANDOM": "probe --model baseline:random --suite",
    "ONE": "mini-random-strict",
    "BOTH": "mini-majority-strict mini-random-strict",
    "GATE": "gate mini-random-strict --baseline mini-majority-strict --rule 'consistency >= 0.05' "
    "--rule 'accuracy no worse than baseline by 20 points'",
    "TWO": "--suite mini --groups capital,sport",
    "MASKED": f"--suite mini --model {SHARED}/models/minilm-mlm",
    "TRAIN": "--train-groups capital,sport --validation-groups currency --train-facts 8 "
    "--batch-size 4 --epochs 1 --weight 0.5 --validation-facts 8 --limit 5",
    "PAIRS": f"probe --suite mrpc --data {SHARED}/data/glue/mrpc/validation.tsv",
    "PARAREL": "--suite pararel",
    "MRPC": f"--task mrpc --train {SHARED}/data/glue/mrpc/train.tsv --validation "
    f"{SHARED}/data/glue/mrpc/validation.tsv --max-length 64 --limit 64 --epochs 1 "
    "--batch-size 16 --learning-rate 1e-4",
}
"""What stands for itself in the commands."""

COMMANDS = """
mini-majority-{strict,published}: probe --suite mini --model baseline:majority --protocol {} OUT
mini-random-{strict,published}: RANDOM mini --protocol {} OUT
mini-smollm2: ASK mini --groups capital,painter --limit 4 OUT
score: score ONE --suite mini --protocol published
compare{,.txt}: compare BOTH
analyze-{edits,patterns,examples}: analyze {} ONE
analyze-knowledge: analyze knowledge ONE mini-smollm2
questions-{label,sum,mean,bytes}: ASK SOME --option-score {} OUT
questions-orders: ASK SOME --vary order=rotations --vary labels=A,1 OUT
questions-floor: ASK SOME --vary order=reversed --noise-floor 20 OUT
questions-labels: ASK SOME --generate OUT
questions-open: ASK OPEN OUT
questions-samples: ASK OPEN --vary paraphrase --vary sample=3 --temperature 0.8 OUT
questions-templates: ASK SOME --vary template=plain,chat OUT
questions-shots: ASK SOME --vary order=reversed --shots 2 OUT
questions-one-factor: ASK SOME --vary paraphrase=1,2 --vary labels=A,1 --design one-factor OUT
questions-random: RANDOM mini-questions --limit 8 --vary order=rotations --vary paraphrase=all OUT
facts-as-questions: RANDOM mini --as-questions 3
questions-factors{,.txt}: analyze factors questions-random
expected-{symmetry,negation,transitivity,reversal}: RANDOM consistency/{} OUT
languages: RANDOM mini-languages --limit 10 OUT
{mini-random-strict,expected-symmetry}.txt: score {}
{questions-random,languages}-by-factor.txt: score {} --by factor
gate{,.txt}: GATE
study: study run study.toml
study-report{,.txt}: study report study.toml
scored-mini: score answers-mini.jsonl --suite mini OUT
scored-{mini-questions,mini-open}: score answers-{}.jsonl --suite {} --match contains OUT
floor: probe TWO --limit 4 --model packaged:smollm2 --noise-floor 20 OUT
seed-{1,2}: probe TWO --seed {} --model baseline:random OUT
compare-seeds: compare seed-1 seed-2
publish: publish seed-1 --format eee --model-id me/mine --organization me --out published
report-{seed-1,questions-random,languages}.txt: report {} --out {}.html
mini-masked-{strict,published}: probe MASKED --protocol {} --limit 10 OUT
mini-pieces: probe MASKED --candidates pieces --groups author,capital --limit 5 OUT
compare-masked: compare mini-masked-strict mini-masked-published
representations: analyze representations MASKED --groups capital,sport --limit 10
improve: improve MASKED --loss pairs TRAIN --out improved
improve-vote: improve MASKED --loss vote TRAIN --out improved-vote
pararel-majority-{strict,published}: probe PARAREL --model baseline:majority --protocol {} OUT
pararel-masked: probe MASKED PARAREL --groups P36,P37,P413 --limit 60 OUT
score-pararel: score pararel-masked PARAREL --protocol strict
finetune-{0,1}: finetune --model packaged:minilm MRPC --seed {} --out classifiers
pairs-{0,1}: PAIRS --model classifiers/seed-{}/mrpc --perturbations all --limit 60 OUT
pairs-compare: compare pairs-0 pairs-1
pairs-writer: PAIRS --model packaged:smollm2 --generate --limit 5 OUT
"""
"""Name and arguments of every command, in ``name-{a,b}`` with each of these in place of ``{}``. A
later one may read the run of an earlier one."""

STUDY = """
options = {limit = 4}
models = [{model = "baseline:random"}, {name = "majority", model = "baseline:majority"}]
suites = [{suite = "mini"}, {suite = "mini-questions", vary = ["order=rotations"]}]
"""


def commands() -> dict[str, list[str]]:
    """The commands whose data and models are here."""
    found: dict[str, list[str]] = {}
    for line in COMMANDS.strip().splitlines():
        match = re.fullmatch(r"([^{:]*){?([^}:]*)}?([^:]*): (.*)", line)
        start, names, end, text = match.groups() if match else ("",) * 4
        for part in names.split(","):
            name = start + part + end
            each = text.replace("{}", part).replace(" OUT", f" --out {name}").split(" ")
            arguments = shlex.split(" ".join(WORDS.get(word, word) for word in each))
            if all(Path(word).exists() for word in arguments if word.startswith(str(SHARED))):
                found[name] = arguments
    has_pararel = (SHARED / "data" / "pararel").is_dir()
    return {name: of for name, of in found.items() if has_pararel or "pararel" not in of}


def record_families_and_servers(out: Path) -> None:
    """Tiny models of other families, and one behind a URL by each strategy, with its requests."""
    sys.path.insert(0, str(ROOT / "tests"))
    from conftest import build_model  # type: ignore[import-not-found]
    from scoring_server import SGLANG, VLLM, scoring_server  # type: ignore[import-not-found]

    for family in ("gpt2", "t5", "llama"):
        if not (out / "tiny" / family).is_dir():
            (out / "tiny").mkdir(exist_ok=True)
            config = build_model(family, out / "tiny" / family) / "config.json"
            longer = config.read_text().replace('embeddings": 64', 'embeddings": 256')
            config.write_text(longer)  # llama: a question has 97 tokens
        probe = ["probe", "--suite", "mini", "--groups", "capital,sport", "--limit", "5"]
        probe += ["--model", f"tiny/{family}", "--out", f"tiny-{family}"]
        _record(out, f"tiny-{family}", probe)
    for suite in ("mini", "mini-questions"):
        for name, ways in {"prompt-logprobs": VLLM, "echo": SGLANG}.items():
            run = f"served-{suite}-{name}"
            if (out / f"{run}.requests.json").exists():
                continue
            with scoring_server(out / "tiny" / "llama", ways) as server:
                probe = ["probe", "--model", "openai:tiny", "--base-url", server.url]
                probe += ["--tokenizer", "tiny/llama", "--concurrency", "1", "--out", run]
                probe += ["--suite", suite, "--groups", "continent", "--limit", "1"]
                probe += ["--template", "plain"] if suite == "mini-questions" else []
                _record(out, run, probe)
                bodies = sorted(json.dumps(request) for request in server.received)
            (out / f"{run}.requests.json").write_text(json.dumps(bodies, indent=0))


def write_answers(out: Path) -> None:
    """Answers in exported prompts; of three one is wrong, and one says more than the answer."""
    for suite in ("mini", "mini-questions", "mini-open"):
        export = ["suite", "export", suite, "--limit", "2", "--out", f"asked-{suite}.csv"]
        _record(out, f"asked-{suite}.txt", export)
        rows = pl.read_csv(out / f"asked-{suite}.csv", infer_schema=False).to_dicts()
        golds = [row["gold"] for row in rows]
        lines = [
            {key: row[key] for key in ("id", "group", "item", "variant")}
            | {"answer": (gold, golds[at - 1], f"It is {gold}.")[at % 3]}
            for at, (row, gold) in enumerate(zip(rows, golds, strict=True))
        ]
        text = "".join(json.dumps(line) + "\n" for line in lines)
        (out / f"answers-{suite}.jsonl").write_text(text, encoding="utf-8")


def record(out: Path, only: list[str]) -> None:
    """Run every command in ``out``; its JSON document is kept as NAME.json."""
    out.mkdir(parents=True, exist_ok=True)
    (out / "study.toml").write_text(STUDY, encoding="utf-8")
    shutil.copytree(ROOT / "examples" / "consistency", out / "consistency", dirs_exist_ok=True)
    if not only:
        write_answers(out)
    everything = commands()
    chosen = {name for name in everything for part in only or ["*"] if fnmatch(name, part)}
    reads = {word for name in chosen for word in everything[name]}
    for name, arguments in everything.items():
        if name in chosen | reads:
            _record(out, name, arguments)
    if not only or any(fnmatch(name, part) for name in ("tiny", "served") for part in only):
        record_families_and_servers(out)


def _record(out: Path, name: str, arguments: list[str]) -> None:
    is_text = name.endswith(".txt")
    kept = out / (name if is_text else f"{name}.json")
    if kept.exists():
        return
    settings = {"HF_HUB_OFFLINE": "1", "CONSILIENCE_DATA": str(SHARED / "data"), "COLUMNS": "100"}
    start = time.perf_counter()
    call = [sys.executable, "-m", "consilience", *arguments, *([] if is_text else ["--json"])]
    answer = subprocess.run(
        call, cwd=out, env=os.environ | settings, capture_output=True, text=True, check=False
    )
    seconds = time.perf_counter() - start
    print(f"{answer.returncode} {seconds:6.1f} s  {' '.join(arguments)}", flush=True)
    if answer.returncode in (0, 3):
        notes = f"--- standard error\n{answer.stderr}" if is_text and answer.stderr else ""
        kept.write_text(answer.stdout + notes, encoding="utf-8")
    elif name.startswith("refused-"):
        kept.write_text(f"{answer.returncode}\n{answer.stderr}", encoding="utf-8")
    else:
        print(answer.stderr[-2000:], flush=True)


VOLATILE = {"run", "seconds", "path", "folder", "memory", "started", "finished", "versions", "git"}
"""Keys of a JSON document that differ between two runs of one revision."""

KEYS = ("metric", "over", "group", "level", "first", "second", "relation", "item", "variant",
        "variant_index", "factor", "factors", "outcome", "effect", "rule", "label")  # fmt: skip
"""Columns that name a row of a table."""

BOUNDS = {"low": "high", "change_low": "change_high", "corrected_low": "corrected_high",
          "share_low": "share_high"}  # fmt: skip

Rows = dict[tuple[str, ...], dict[str, Any]]


def of_today(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row of metrics or differences; one from before typed rows becomes one of today."""
    row = dict(row)
    for name in ("suite", "kind"):  # of one metric no two kinds have the same level
        row.pop(name, None)
    group, subset = str(row.get("group")), row.pop("subset", None)
    if "metric" in row:
        row["metric"] = str(row["metric"]).replace("no_label", "no_option")
    if subset is not None:
        row["level"] = {"all": "", "repeated": ""}.get(subset, str(subset)).removeprefix(
            "language="
        )
    if "metric" in row and "over" not in row and "group" in row:
        row["over"] = {"MACRO": "mean", "MICRO": "all"}.get(group, "group")
        row["group"] = "" if row["over"] != "group" else group
    return row


def tables(folder: Path) -> Iterator[tuple[str, Rows, Any]]:
    """Every table of numbers by its name, and of a document also what is no table."""
    for path in sorted(folder.rglob("*")):
        name, is_top = str(path.relative_to(folder)), path.parent == folder
        if path.suffix in (".parquet", ".csv"):
            read = pl.read_parquet if path.suffix == ".parquet" else pl.read_csv
            yield name, keyed(read(path).to_dicts()), None
        elif path.suffix == ".json" and is_top:
            found: dict[str, list[Any]] = {}
            yield name, {}, _without_tables(json.loads(path.read_text()), name, found)
            yield from ((of, keyed(rows), None) for of, rows in found.items())
        elif path.suffix == ".txt":
            yield name, {}, path.read_text().splitlines()


def _without_tables(value: Any, name: str, found: dict[str, list[Any]]) -> Any:
    """A document without its tables, which are added to ``found``."""
    if isinstance(value, list) and value and isinstance(value[0], dict):
        found[name] = value
        return None
    if not isinstance(value, dict):
        return value
    kept = {key: of for key, of in value.items() if key not in VOLATILE}
    return {key: _without_tables(of, f"{name}/{key}", found) for key, of in kept.items()}


def keyed(rows: list[dict[str, Any]]) -> Rows:
    """Rows by the columns that name them; by their place, too, where these are the same."""
    found: Rows = {}
    for row in map(of_today, rows):
        key = tuple(str(row.pop(name)) for name in KEYS if isinstance(row.get(name), str | int))
        while key in found:
            key = (*key, "again")
        found[key] = row
    return found


def differences(before: Path, after: Path) -> Iterator[str]:
    """Every value that differs, then counts of bounds, then what is no number."""
    later = {name: (rows, rest) for name, rows, rest in tables(after)}
    widths: dict[str, list[float]] = defaultdict(list)
    others = []
    for name, rows, rest in tables(before):
        if name not in later:
            others.append(f"{name}: only before")
            continue
        new_rows, new_rest = later[name]
        for where, only in (("before", rows.keys() - new_rows), ("after", new_rows.keys() - rows)):
            if only:
                some = "; ".join(sorted(", ".join(key) for key in only)[:5])
                others.append(f"{name}: {len(only)} rows only {where}, such as {some}")
        for key in (key for key in rows if key in new_rows):
            one, two = rows[key], new_rows[key]
            for column in (of for of in one if of in two and of not in BOUNDS.values()):
                if column in BOUNDS:
                    widths[f"{column} of {', '.join(key[:2])}"].append(_moved(one, two, column))
                elif not _same(one[column], two[column]):
                    yield f"{name}: {', '.join(key)}: {column} {one[column]} -> {two[column]}"[:400]
        if isinstance(rest, list) and isinstance(new_rest, list):
            lines = difflib.unified_diff(rest, new_rest, lineterm="", n=0)
            others += [f"{name}: {of}" for of in lines if of[:2] not in ("--", "++", "@@")]
        elif rest != new_rest:
            others.append(f"{name}: the document differs outside its tables")
    for kind, of in sorted(widths.items()):
        small, gone = sum(one <= 0.05 for one in of), sum(map(math.isinf, of))
        most = max((one for one in of if not math.isinf(one)), default=0)
        yield (f"bounds, {kind}: {small} of {len(of)} within 5 % of the width, at most "
               f"{most:.2f} widths; {gone} with an interval before or after only")  # fmt: skip
    yield from others


def _same(one: Any, two: Any) -> bool:
    if _is_nan(one) or _is_nan(two):
        return _is_nan(one) and _is_nan(two)
    if isinstance(one, int | float) and isinstance(two, int | float):
        return math.isclose(one, two, rel_tol=1e-9, abs_tol=1e-9)
    return bool(one == two)


def _moved(one: Mapping[str, Any], two: Mapping[str, Any], low: str) -> float:
    """How far a bound moved at most, over the width of the interval before."""
    ends: Any = [(row.get(low), row.get(BOUNDS[low])) for row in (one, two)]
    (a, b), (c, d) = ends
    there = [not any(map(_is_nan, of)) for of in ends]
    if not all(there):
        return math.inf if any(there) else 0.0
    return float(max(abs(a - c), abs(b - d)) / max(b - a, 1e-12))


def _is_nan(value: Any) -> bool:
    return value is None or (isinstance(value, float) and math.isnan(value))


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["record", out, *only]:
            record(Path(out).resolve(), only)
        case ["compare", before, after]:
            found = list(differences(Path(before), Path(after)))
            print("\n".join(found) or "no difference")
            sys.exit(bool(found))
        case _:
            sys.exit(__doc__)
