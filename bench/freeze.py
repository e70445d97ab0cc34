"""Freeze results, so that a change of structure can be shown to change no number.

``python bench/freeze.py record OUT [NAME ...]`` runs commands of the installed revision and keeps
their results in OUT; of the names, such as ``'*mini*'``, only these and the runs that they read.
``python bench/freeze.py compare BEFORE AFTER`` lists every value that differs and exits with 1 if
one does. To record another revision, set ``PYTHONPATH`` to its ``src``. ParaRel, GLUE and a masked
model are read from ``../shared`` or ``CONSILIENCE_SHARED``; without them only the runs of the
bundled suites are recorded. Of a name that ends with .txt the printed text is kept, of all others
the JSON document; of a server also the bodies of the requests that it got.
"""

from __future__ import annotations

import difflib
import json
import math
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import polars as pl

SHARED = Path(os.environ.get("CONSILIENCE_SHARED", Path(__file__).parents[2] / "shared")).resolve()
MASKED = SHARED / "models" / "minilm-mlm"
PAIRS = SHARED / "data" / "glue"

CONSISTENCY = Path(__file__).parents[1] / "examples" / "consistency"

KEYS = ("first", "second", "metric", "subset", "group", "relation", "item", "variant_index")
"""Columns that name a row in tables with ``metric`` or ``item``: rows are compared by them."""

VOLATILE = {"run", "seconds", "path", "folder", "memory", "started", "finished", "versions", "git"}
"""Keys of a JSON document that differ between two runs of one revision."""


def commands() -> Iterator[tuple[str, list[str]]]:
    """Name and arguments of every recorded command; a later one may read an earlier one's run."""
    mini = ["--suite", "mini"]
    for model in ("majority", "random"):
        for protocol in ("strict", "published"):
            run = f"mini-{model}-{protocol}"
            chosen = ["--model", f"baseline:{model}", "--protocol", protocol]
            yield run, ["probe", *mini, *chosen, "--out", run]
    smollm2 = ["probe", *mini, "--model", "packaged:smollm2", "--groups", "capital,painter"]
    yield "mini-smollm2", [*smollm2, "--limit", "4", "--out", "mini-smollm2"]
    scores = ["--limit", "2", "--keep-scores", "--out", "mini-smollm2-scores"]
    yield "mini-smollm2-scores", [*smollm2, *scores]
    yield "score", ["score", "mini-random-strict", *mini, "--protocol", "published"]
    yield "compare", ["compare", "mini-majority-strict", "mini-random-strict"]
    for analysis in ("edits", "patterns", "examples"):
        yield f"analyze-{analysis}", ["analyze", analysis, "mini-random-strict"]
    knowledge = ["mini-random-strict", "mini-smollm2"]
    yield "analyze-knowledge", ["analyze", "knowledge", *knowledge]
    yield from question_commands()
    yield from table_commands()
    for command in HELPED:
        yield f"help-{command or 'all'}.txt".replace(" ", "-"), [*command.split(), "--help"]
    if MASKED.is_dir():
        yield from masked_commands(mini)
    if PAIRS.is_dir():
        yield from pair_commands()


HELPED = """

probe
score
compare
gate
report
publish
improve
finetune
reproduce
study
study run
study status
study report
analyze
analyze patterns
analyze edits
analyze examples
analyze knowledge
analyze factors
analyze syntax
analyze tasks
analyze representations
suite
suite list
suite new
suite fetch
suite check
suite export
suite mine
suite import
suite rewrite
suite annotate
suite annotate sheet
suite annotate patterns
suite annotate score
""".splitlines()[1:]
"""Commands whose help is kept."""


def question_commands() -> Iterator[tuple[str, list[str]]]:
    """Of questions: each scoring rule, factors, languages, written answers, expectations."""
    ask = ["probe", "--model", "packaged:smollm2", "--limit", "1", "--suite"]
    some = ["mini-questions", "--groups", "capital,sport"]
    for rule in ("label", "sum", "mean", "bytes"):
        run = f"questions-{rule}"
        yield run, [*ask, *some, "--option-score", rule, "--out", run]
    orders = ["--vary", "order=rotations", "--vary", "labels=A,1"]
    yield "questions-orders", [*ask, *some, *orders, "--out", "questions-orders"]
    floor = ["--noise-floor", "20", "--out", "questions-floor"]
    yield "questions-floor", [*ask, *some, "--vary", "order=reversed", *floor]
    yield "questions-labels", [*ask, *some, "--generate", "--out", "questions-labels"]
    open_ones = ["mini-open", "--groups", "capital", "--match", "contains"]
    yield "questions-open", [*ask, *open_ones, "--out", "questions-open"]
    samples = ["--samples", "3", "--temperature", "0.8", "--out", "questions-samples"]
    yield "questions-samples", [*ask, *open_ones, *samples]
    for name, more in {
        "templates": ["--vary", "template=plain,chat"],
        "shots": ["--vary", "order=reversed", "--shots", "2"],
        "one-factor": [
            "--vary",
            "paraphrase=1,2",
            "--vary",
            "labels=A,1",
            "--design",
            "one-factor",
        ],
    }.items():
        yield f"questions-{name}", [*ask, *some, *more, "--out", f"questions-{name}"]
    guess = ["probe", "--model", "baseline:random", "--suite", "mini-questions", "--limit", "8"]
    factors = ["--vary", "order=rotations", "--vary", "paraphrase=all"]
    yield "questions-random", [*guess, *factors, "--out", "questions-random"]
    yield "facts-as-questions", [*guess[:3], "--suite", "mini", "--as-questions", "3"]
    yield "questions-factors", ["analyze", "factors", "questions-random"]
    yield "questions-factors.txt", ["analyze", "factors", "questions-random"]
    yield "questions-by-factor.txt", ["score", "questions-random", "--by", "factor"]
    for name in ("symmetry", "negation", "transitivity", "reversal"):
        run = f"expected-{name}"
        probe = ["probe", "--model", "baseline:random", "--suite", f"consistency/{name}"]
        yield run, [*probe, "--out", run]
    languages = ["probe", "--suite", "mini-languages", "--model", "baseline:random"]
    yield "languages", [*languages, "--limit", "10", "--out", "languages"]


def table_commands() -> Iterator[tuple[str, list[str]]]:
    """Of what is made from runs: texts, exports, gates, a plan, a study."""
    yield "mini.txt", ["score", "mini-random-strict"]
    yield "mini-by-group.txt", ["score", "mini-random-strict", "--by", "group"]
    yield "compare.txt", ["compare", "mini-majority-strict", "mini-random-strict"]
    yield "expected-symmetry.txt", ["score", "expected-symmetry"]
    for suite, limit in (("mini", "3"), ("mini-questions", "2")):
        export = ["suite", "export", suite, "--limit", limit, "--out", f"{suite}.csv"]
        yield f"export-{suite}.txt", export
    for suite in ("mini", "mini-questions", "mini-open"):
        yield f"check-{suite}.txt", ["suite", "check", suite]
    rules = ["--rule", "consistency >= 0.05", "--rule", "accuracy no worse than baseline"]
    rules[-1] += " by 20 points"
    gate = ["gate", "mini-random-strict", "--baseline", "mini-majority-strict", *rules]
    yield "gate", gate
    yield "gate.txt", gate
    yield "gate.md.txt", [*gate, "--format", "md"]
    yield "study", ["study", "run", "study.toml"]
    yield "study-status.txt", ["study", "status", "study.toml"]
    yield "study-report", ["study", "report", "study.toml"]
    yield "study-report.txt", ["study", "report", "study.toml"]
    yield from more_table_commands()
    yield from text_commands()


def more_table_commands() -> Iterator[tuple[str, list[str]]]:
    """Answers made elsewhere, seeds, noise floors, publication, planned runs."""
    for suite in ("mini", "mini-questions", "mini-open"):
        answers = f"answers-{suite}.jsonl"
        match = ["--match", "contains"] if suite != "mini" else []
        scored = ["score", answers, "--suite", suite, *match]
        yield f"scored-{suite}", [*scored, "--out", f"scored-{suite}"]
        yield f"scored-{suite}.txt", scored
    some = ["probe", "--suite", "mini", "--groups", "capital,sport", "--limit", "4"]
    floor = ["--model", "packaged:smollm2", "--noise-floor", "20", "--out", "floor"]
    yield "floor", [*some, *floor]
    for seed in ("1", "2"):
        run = f"seed-{seed}"
        whole = ["probe", "--suite", "mini", "--groups", "capital,sport", "--seed", seed]
        yield run, [*whole, "--model", "baseline:random", "--out", run]
    yield "gate-of-two.txt", ["gate", "seed-1", "seed-2", "--rule", "consistency >= 0.05"]
    yield "compare-seeds", ["compare", "seed-1", "seed-2"]
    named = ["--model-id", "me/mine", "--organization", "me"]
    yield "publish", ["publish", "seed-1", "--format", "eee", *named, "--out", "published"]
    yield (
        "publish-card.txt",
        ["publish", "seed-1", "--format", "model-card", *named[:2], "--out", "card"],
    )
    yield "plan", [*some, "--model", "baseline:random", "--dry-run"]
    for relation in ("seed-1", "questions-random", "languages"):
        yield f"report-{relation}.txt", ["report", relation, "--out", f"{relation}.html"]
    yield "report-two.txt", ["report", "seed-1", "seed-2", "--out", "two.html"]
    tables = ["--tables", "tables", "--out", "tables.html"]
    yield "report-tables.txt", ["report", "mini-random-strict", *tables]


def text_commands() -> Iterator[tuple[str, list[str]]]:
    """The printed text of commands whose document is kept above, and of refusals."""
    for analysis in ("edits", "patterns", "examples", "knowledge"):
        yield f"analyze-{analysis}.txt", ["analyze", analysis, "mini-random-strict"]
    for by in ("group", "form", "edit", "metric"):
        yield f"mini-forms-by-{by}.txt", ["score", "mini-forms", "--by", by]
    yield "languages-by-factor.txt", ["score", "languages", "--by", "factor"]
    for form in ("csv", "md", "latex"):
        yield f"mini-{form}.txt", ["score", "mini-random-strict", "--format", form]
        compared = ["compare", "mini-majority-strict", "mini-random-strict", "--format", form]
        yield f"compare-{form}.txt", compared
    yield "suites.txt", ["suite", "list"]
    yield "recipes.txt", ["reproduce"]
    yield "pararel-table1.txt", ["reproduce", "pararel-table-1", "--dry-run"]
    for suite in ("mini", "mini-questions", "mini-open", "mini-languages"):
        yield f"check-{suite}.txt", ["suite", "check", suite]
    yield "new.txt", ["suite", "new", "own"]
    yield "own.txt", ["probe", "--suite", "own", "--model", "packaged:smollm2", "--limit", "1"]
    wrong = {
        "option": ["probe", "--modle", "x"],
        "command": ["prob"],
        "model": ["probe", "--model", "baseline:nope"],
        "suite": ["probe", "--suite", "nope"],
        "kind": ["probe", "--suite", "mini", "--model", "baseline:random", "--data", "x.tsv"],
        "rule": ["gate", "mini-random-strict", "--rule", "consistency > 0.8"],
        "run": ["score", "nothere"],
        "value": ["probe", "--limit", "x"],
        "url": ["probe", "--model", "openai:x"],
    }
    for name, arguments in wrong.items():
        yield f"refused-{name}.txt", arguments


STUDY = """
[options]
limit = 4
[[models]]
model = "baseline:random"
[[models]]
name = "majority"
model = "baseline:majority"
[[suites]]
suite = "mini"
[[suites]]
suite = "mini-questions"
vary = ["order=rotations"]
"""


def record_families_and_servers(out: Path) -> None:
    """Tiny models of other families, and one behind a URL by each strategy, with its requests."""
    sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
    from conftest import build_model  # type: ignore[import-not-found]
    from scoring_server import SGLANG, VLLM, scoring_server  # type: ignore[import-not-found]

    for family in ("gpt2", "t5", "llama"):
        if not (out / "tiny" / family).is_dir():
            (out / "tiny").mkdir(exist_ok=True)
            config = build_model(family, out / "tiny" / family) / "config.json"
            longer = config.read_text().replace('embeddings": 64', 'embeddings": 256')
            config.write_text(longer)  # llama: a question has 97 tokens
        run = f"tiny-{family}"
        probe = ["probe", "--suite", "mini", "--groups", "capital,sport", "--limit", "5"]
        _record(out, run, [*probe, "--model", f"tiny/{family}", "--keep-scores", "--out", run])
    served = {
        "prompt-logprobs": VLLM,
        "echo": SGLANG,
    }
    for suite in ("mini", "mini-questions"):
        for name, ways in served.items():
            run = f"served-{suite}-{name}"
            if (out / f"{run}.requests.json").exists():
                continue
            with scoring_server(out / "tiny" / "llama", ways) as server:
                probe = ["probe", "--model", "openai:tiny", "--base-url", server.url]
                probe += ["--tokenizer", "tiny/llama", "--concurrency", "1"]
                asked = ["--suite", suite, "--groups", "continent", "--limit", "1"]
                plain = ["--template", "plain"] if suite == "mini-questions" else []
                _record(out, run, [*probe, *asked, *plain, "--out", run])
                bodies = sorted(json.dumps(request) for request in server.received)
            (out / f"{run}.requests.json").write_text(json.dumps(bodies, indent=0))


def masked_commands(mini: list[str]) -> Iterator[tuple[str, list[str]]]:
    """Of the small masked model: both protocols, several tokens, ParaRel, one training."""
    model = ["--model", str(MASKED)]
    for protocol in ("strict", "published"):
        run = f"mini-masked-{protocol}"
        chosen = ["--protocol", protocol, "--limit", "10", "--out", run]
        yield run, ["probe", *mini, *model, *chosen]
    pieces = ["--multi-token", "left-to-right", "--groups", "author,capital", "--limit", "5"]
    yield "mini-pieces", ["probe", *mini, *model, *pieces, "--out", "mini-pieces"]
    yield (
        "compare-masked",
        ["compare", "mini-masked-strict", "mini-masked-published", "--protocol", "strict"],
    )
    vectors = ["analyze", "representations", *mini, *model, "--groups", "capital,sport"]
    yield "representations", [*vectors, "--limit", "10"]
    training = ["--train-groups", "capital,sport", "--validation-groups", "currency"]
    training += ["--train-facts", "8", "--batch-size", "4", "--loss", "pairs"]
    training += ["--epochs", "1", "--lambda", "0.5"]
    training += ["--validation-facts", "8", "--limit", "5", "--out", "improved"]
    yield "improve", ["improve", *mini, *model, *training]
    vote = ["vote" if word == "pairs" else word for word in training[:-1]]
    yield "improve-vote", ["improve", *mini, *model, *vote, "improved-vote"]
    if (SHARED / "data" / "pararel").is_dir():
        pararel = ["probe", "--suite", "pararel"]
        for protocol in ("strict", "published"):
            run = f"pararel-majority-{protocol}"
            chosen = ["--model", "baseline:majority", "--protocol", protocol, "--out", run]
            yield run, [*pararel, *chosen]
        run = "pararel-masked"
        chosen = ["--groups", "P36,P37,P413", "--limit", "60", "--out", run]
        yield run, [*pararel, *model, *chosen]
        yield "score-pararel", ["score", run, "--suite", "pararel", "--protocol", "strict"]


def pair_commands() -> Iterator[tuple[str, list[str]]]:
    """Of sentence pairs: a classifier with two seeds, its forms, a comparison, a label writer."""
    train, held_out = (str(PAIRS / "mrpc" / f"{name}.tsv") for name in ("train", "validation"))
    small = ["--limit", "64", "--epochs", "1", "--batch-size", "16"]
    small += ["--learning-rate", "1e-4", "--seeds", "0,1"]
    options = ["--train", train, "--validation", held_out, "--max-length", "64", *small]
    classifier = ["finetune", "--model", "packaged:minilm", "--task", "mrpc", *options]
    yield "finetune", [*classifier, "--out", "classifiers"]
    probe = ["probe", "--suite", "mrpc"]
    probe += ["--data", held_out]
    forms = ["--perturbations", "all", "--limit", "60"]
    for seed in (0, 1):
        run = f"pairs-{seed}"
        yield run, [*probe, "--model", f"classifiers/seed-{seed}/mrpc", *forms, "--out", run]
    yield "pairs-both", [*probe, "--model", "classifiers", *forms, "--out", "pairs-both"]
    yield "pairs-compare", ["compare", "pairs-0", "pairs-1"]
    writer = ["--model", "packaged:smollm2", "--generate", "--limit", "5"]
    yield "pairs-writer", [*probe, *writer, "--out", "pairs-writer"]


def write_answers(out: Path) -> None:
    """Answers in the prompts that the program exports, as somebody else's program would add them.

    Every third is wrong or says more than the answer.
    """
    for suite in ("mini", "mini-questions", "mini-open"):
        export = ["suite", "export", suite, "--limit", "2", "--out", f"asked-{suite}.csv"]
        _record(out, f"asked-{suite}.txt", export)
        asked = pl.read_csv(out / f"asked-{suite}.csv", infer_schema=False)
        golds = asked["gold"].to_list()
        answers = [
            golds[place - 1] if place % 3 == 1 else f"It is {gold}." if place % 3 else gold
            for place, gold in enumerate(golds)
        ]
        pairs = zip(asked.iter_rows(named=True), answers, strict=True)
        rows = [
            {key: row[key] for key in ("group", "item", "variant")} | {"answer": answer}
            for row, answer in pairs
        ]
        _write_rows(out / f"answers-{suite}.jsonl", rows)


def _write_rows(path: Path, rows: list[dict[str, object]]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def record(out: Path, only: list[str]) -> None:
    """Run every command in ``out``; its JSON document is kept as NAME.json."""
    out.mkdir(parents=True, exist_ok=True)
    (out / "study.toml").write_text(STUDY, encoding="utf-8")
    shutil.copytree(CONSISTENCY, out / "consistency", dirs_exist_ok=True)
    if not only:
        write_answers(out)
    everything = dict(commands())
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
    environment = os.environ | {"HF_HUB_OFFLINE": "1", "CONSILIENCE_DATA": str(SHARED / "data")}
    environment |= {"COLUMNS": "100"}
    start = time.perf_counter()
    call = [sys.executable, "-m", "consilience", *arguments, *([] if is_text else ["--json"])]
    answer = subprocess.run(
        call, cwd=out, env=environment, capture_output=True, text=True, check=False
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


def differences(before: Path, after: Path) -> Iterator[str]:
    """Every file, column and value of ``before`` that is not the same in ``after``."""
    for path in sorted(before.rglob("*")):
        name = path.relative_to(before)
        other = after / name
        if path.suffix not in (".parquet", ".csv", ".json", ".txt") or "answers" in path.suffixes:
            continue
        if path.suffix == ".json" and len(name.parts) > 1:
            continue  # records of runs and models hold times and paths
        if not other.exists():
            yield f"{name}: only in {before}"
        elif path.suffix == ".txt":
            lines = difflib.unified_diff(
                path.read_text().splitlines(), other.read_text().splitlines(), lineterm="", n=0
            )
            yield from (f"{name}: {line}" for line in lines if line[:2] not in ("--", "++", "@@"))
        elif path.suffix == ".json":
            yield from _values(
                str(name), json.loads(path.read_text()), json.loads(other.read_text())
            )
        else:
            read = pl.read_parquet if path.suffix == ".parquet" else pl.read_csv
            yield from _tables(str(name), read(path), read(other))


def _tables(name: str, one: pl.DataFrame, two: pl.DataFrame) -> Iterator[str]:
    keys = [key for key in KEYS if key in one.columns and key in two.columns]
    if {"metric", "item"} & set(keys) and not one.select(keys).is_duplicated().any():
        only = [table.join(other, on=keys, how="anti") for table, other in ((one, two), (two, one))]
        for rows, where in zip(only, ("first", "second"), strict=True):
            kinds = rows.select(keys[:2]).unique().sort(keys[:2]).rows()
            if rows.height:
                yield f"{name}: {rows.height} rows are only in the {where}: {kinds[:20]}"
        one = one.join(two, on=keys, how="semi").sort(keys)
        two = two.join(one, on=keys, how="semi").sort(keys)
    if one.height != two.height:
        yield f"{name}: {one.height} rows, then {two.height}"
        return
    for column in one.columns:
        if column not in two.columns:
            yield f"{name}: the column {column} is gone"
        elif not one[column].equals(two[column], null_equal=True):
            at = (one[column].ne_missing(two[column])).arg_max() or 0
            changed = int(one[column].ne_missing(two[column]).sum())
            values = f"{one[column][at]!r}, then {two[column][at]!r}"
            yield f"{name}: {column} differs in {changed} rows, first row {at}: {values}"


def _values(name: str, one: object, two: object) -> Iterator[str]:
    if isinstance(one, dict) and isinstance(two, dict):
        for key in sorted((one.keys() | two.keys()) - VOLATILE):
            if key not in one or key not in two:
                yield f"{name}: {key} is only in the {'second' if key in two else 'first'}"
            else:
                yield from _values(f"{name}/{key}", one[key], two[key])
    elif _are_rows(one) and _are_rows(two):
        rows: Any = (one, two)
        yield from _tables(name, *map(pl.DataFrame, rows))
    elif isinstance(one, list) and isinstance(two, list) and len(one) == len(two):
        for place, (first, second) in enumerate(zip(one, two, strict=True)):
            yield from _values(f"{name}[{place}]", first, second)
    elif one != two and not (_is_nan(one) and _is_nan(two)):
        yield f"{name}: {str(one)[:200]!r}, then {str(two)[:200]!r}"


def _are_rows(value: object) -> bool:
    """Whether a value of a JSON document is a table of numbers."""
    return (
        isinstance(value, list)
        and bool(value)
        and isinstance(value[0], dict)
        and "metric" in value[0]
    )


def _is_nan(value: object) -> bool:
    return isinstance(value, float) and math.isnan(value)


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
