"""CALUM's tables, its t-tests and its human performance as recipes (Jang et al. 2021)."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TypeVar

import polars as pl

from consilience.analysis.task_types import LONG, RUNS_SCHEMA, gains, read_runs, task_effects
from consilience.errors import OTHER_OUT, ConsilienceError
from consilience.files import texts_of
from consilience.report.papers import Key, Measured, paper_numbers
from consilience.reproduce.recipe import NOT_ASKED, NOT_HERE, Found, Work, recipe
from consilience.run import record_of
from consilience.suites.pairs import HUB, half_of, read_pairs
from consilience.suites.perturbations import PERTURBATIONS
from consilience.suites.tasks import CALUM, TASKS

T = TypeVar("T")

KOREAN = ("kornli", "klue-nli", "klue-sts")
GROUPS = {name: "KorNLI" if name == "kornli" else name.upper() for name in (*CALUM, *KOREAN)}
"""Our tasks and the paper's names of them."""

COLUMNS = {
    "Acc_val": ("accuracy", "all"),
    "C_R": ("consistency", "reverse"),
    "C_S": ("consistency", "signal"),
}
"""The paper's columns as metric and subset."""

SPLITS = ("train", "validation", "test")
FILES = [f"{task}:{split}" for task in GROUPS for split in (*SPLITS, "answers")]
"""Sets of pairs that may be given as files, and what people answered."""

SIZES = dict(zip(("Train set size", "Validation set size", "Test set size"), SPLITS, strict=True))

MODELS = {
    "RoBERTa-base": "FacebookAI/roberta-base",
    "RoBERTa-large": "FacebookAI/roberta-large",
    "Electra-small": "google/electra-small-discriminator",
    "Electra-large": "google/electra-large-discriminator",
    "GPT2-base": "openai-community/gpt2",
    "GPT2-large": "openai-community/gpt2-large",
    "BART-base": "facebook/bart-base",
    "T5-base": "google-t5/t5-base",
    "T5-large": "google-t5/t5-large",
}
KOREAN_MODELS = {
    "KoBERT": "skt/kobert-base-v1",
    "KoElectra": "monologg/koelectra-base-v3-discriminator",
    "KoGPT2": "skt/kogpt2-base-v2",
    "KoBART": "gogamza/kobart-base-v2",
}
"""The paper's models on the Hub; it gives their names alone, and these are the usual ones."""

WRITERS = ("T5-base", "T5-large")
"""They write the label and are not trained here: T5 was trained on all five tasks."""

GENERATED = "-generated"
"""Behind a task's name: the group of what a model wrote freely."""

HUMAN = "Human"

VARIANTS: Mapping[str, Sequence[str]] = {"Single": (), "Para": ("qqp", "mrpc"), "All": CALUM}
"""The tasks that a model is trained on beside its own (Section 6.1)."""

BACKBONES = ("RoBERTa-base", "Electra-large", "GPT2-base")
NLI = ("mnli", "qnli", "rte")
TABLE_6 = tuple(f"{model}-{variant}" for model in BACKBONES for variant in VARIANTS)

EXAMPLES: Mapping[str, tuple[str, Sequence[tuple[str, str]], int]] = {
    "3": ("RoBERTa-large", (("rte", "signal"), ("mrpc", "reverse"), ("qnli", "reverse")), 1),
    "4": ("T5-large", (("mrpc", "signal"),), 3),
    "7": ("Electra-large", (("rte", "signal"), ("mrpc", "reverse"), ("qnli", "reverse")), 1),
    "8": ("T5-large", (("rte", "reverse"), ("mrpc", "signal"), ("qnli", "signal")), 1),
    "9": ("T5-base", (("rte", "signal"),), 3),
}
"""Tables of examples: the model, each task with what changed its answer, and how many of each."""

SELECTIONS: Mapping[str, Sequence[str]] = {
    "": (*WRITERS, HUMAN),
    ", with T5": (HUMAN,),
    ", with T5 and people": (),
}
"""Which models the t-tests leave out; the first as the paper."""

CLAIMS: Mapping[tuple[str, str], tuple[str, str]] = {
    ("REVERSE", "STS vs NLI"): ("reverse", "NLI"),
    ("SIGNAL", "RTE and MRPC vs others"): ("signal", "others"),
}
"""What Section 5.1.1 says is so at .01: the perturbation, and the second of the two sides."""

NOT_RUN = "not run"


class MissingError(Exception):
    """Why a number cannot be had."""


@dataclass(slots=True)
class Trial:
    """What is tried for one table, of whose ``parts``, such as tasks, ``only`` may name some.

    ``gaps``: why a part of a row has no numbers. ``faults``: why pairs or a model cannot be read;
    each is tried once.
    """

    work: Work
    parts: Sequence[str] = ()
    gaps: dict[tuple[str, str], str] = field(default_factory=dict)
    faults: dict[str, str] = field(default_factory=dict)

    def make(self, row: str, part: str, make: Callable[[], T]) -> T | None:
        """What ``make`` makes; None where it cannot, or where ``only`` does not ask for it."""
        try:
            parts = {*self.parts} & {*self.work.only}
            if not self.work.wanted(row) or (parts and part not in parts):
                raise MissingError(NOT_ASKED)
            return make()
        except MissingError as why:
            self.gaps[row, part] = str(why)
            return None

    def run(self, row: str, part: str, *arguments: str | Path) -> None:
        """Run a command; raises where that cannot be done."""
        if not self.work.run(row, *arguments, part=part):
            why = self.work.absent.pop(row)
            if not self.work.dry:
                raise MissingError(why)

    def source(self, task: str, split: str) -> str:
        """Where the pairs of a split are (``source_of``); raises where they cannot be read."""
        name, source = f"{task}:{split}", source_of(self.work, task, split)
        if not self.work.dry and name not in self.faults:
            self.faults[name] = ""
            try:
                read_pairs(source, TASKS[task])
            except ConsilienceError as error:
                self.faults[name] = f"{NOT_HERE}: {error}"
        if fault := self.faults.get(name):
            raise MissingError(fault)
        return source

    def found(self, numbers: Mapping[Key, Measured], *notes: str) -> Found:
        """The numbers with what is to be said; a row that lacks some gets its reasons."""
        reasons: dict[str, dict[str, list[str]]] = {}
        for (row, part), why in self.gaps.items():
            reasons.setdefault(row, {}).setdefault(why, []).append(part)
        for row, found in reasons.items():
            told = {why: parts for why, parts in found.items() if why != NOT_ASKED} or found
            texts = [
                f"{', '.join(parts)}: {why.removeprefix(f'{NOT_HERE}: ')}"
                for why, parts in told.items()
            ]
            several = f"{NOT_HERE}: {'; '.join(texts)}"
            self.work.absent[row] = several if len(told) > 1 else next(iter(told))
        return Found(numbers, notes)


def source_of(work: Work, task: str, split: str) -> str:
    """The file that ``data`` names, else the split of the task's dataset on the Hub."""
    file, name = work.data.get(f"{task}:{split}"), TASKS[task].splits[SPLITS.index(split)]
    if not file and not name:
        raise MissingError(f"{NOT_HERE}: no split of its own on the Hub; give {task}:{split}")
    return file or f"{HUB}:{name}"


def is_halved(work: Work, task: str) -> bool:
    """Whether validation and test are the halves of one set, as with KLUE (Section 4.1)."""
    return not TASKS[task].splits[2] and f"{task}:test" not in work.data


def place_of(work: Work, row: str, task: str) -> Path:
    """Has ``model``, the trainings, and ``run``, the answers; all recipes share them."""
    model, variant = parts_of(row)
    return work.place(model, "calum") / (task if variant == "Single" else f"{task}-{variant}")


def parts_of(row: str) -> tuple[str, str]:
    """A row's model, and the variant of its training."""
    model, _, variant = row.rpartition("-")
    return (model, variant) if variant in VARIANTS else (row, "Single")


def ask(trial: Trial, row: str, task: str) -> Path:
    """The run of a row's model on a task; what is not there yet is trained and asked.

    The checkpoint is chosen on the pairs that are then asked, as in the paper.
    """
    work, place, (model, variant) = trial.work, place_of(trial.work, row, task), parts_of(row)
    spec = work.models.get(model, (MODELS | KOREAN_MODELS)[model])
    if spec in trial.faults:
        raise MissingError(trial.faults[spec])
    held, half = trial.source(task, "validation"), is_halved(work, task)
    asked = [
        "--suite", task, "--data", held, *(("--half", "1") if half else ()), "--out", place / "run",
        "--device", work.device,
    ]  # fmt: skip
    try:
        if model in WRITERS:
            trial.run(row, GROUPS[task], "probe", "--model", spec, *asked, "--generate")
        else:
            others = [each for each in VARIANTS[variant] if each != task]
            beside = [("--with", f"{each}={trial.source(each, 'train')}") for each in others]
            trial.run(
                row, GROUPS[task], "finetune", "--model", spec, "--task", task,
                "--train", trial.source(task, "train"), "--validation", held,
                *(("--half", "1") if half else ()), *(each for pair in beside for each in pair),
                "--out", place / "model", "--device", "cpu" if work.device == "cpu" else "auto",
            )  # fmt: skip
            trial.run(row, GROUPS[task], "probe", "--model", place / "model", *asked)
    except MissingError as why:
        if f"cannot load '{spec}'" in str(why):
            trial.faults[spec] = str(why)
        raise
    if work.dry:
        raise MissingError(NOT_RUN)
    return place / "run"


def sheets_of(work: Work, task: str) -> Path:
    """The folder of the sheets for people; their answers may be elsewhere."""
    given = Path(work.data.get(f"{task}:answers", work.own / "calum" / "sheets" / task))
    return given.parent if given.is_file() else given


def score_people(trial: Trial, task: str) -> Path:
    """The metrics of the people who answered a task."""
    work, sheets = trial.work, sheets_of(trial.work, task)
    if not (sheets / "key.json").is_file():
        raise MissingError(f"{NOT_HERE}: people have to answer; calum-human makes their sheets")
    file = work.own / "calum" / "human" / f"{task}.csv"
    if not work.dry:
        file.parent.mkdir(parents=True, exist_ok=True)
    trial.run(HUMAN, GROUPS[task], "annotate", "score", sheets, "--out", file)
    if work.dry:
        raise MissingError(NOT_RUN)
    return file


def asked_people(trial: Trial, task: str) -> Path:
    """The metrics of the people who answered a task; sheets drawn here from others raise."""
    has_sheets = (sheets_of(trial.work, task) / "key.json").is_file()
    if has_sheets and f"{task}:validation" in trial.work.data:
        draw_sheets(trial, task)
    return score_people(trial, task)


def read(file: Path, row: str, task: str) -> pl.DataFrame:
    """A row's numbers on a task in a table of metrics (``LONG`` and more)."""
    rows = read_runs([file], [row], tasks=TASKS, perturbations=PERTURBATIONS)
    group = task + (GENERATED if row in WRITERS else "")
    return rows.filter(pl.col("task") == group).with_columns(task=pl.lit(task))


def measured(file: Path, row: str, task: str) -> dict[Key, Measured]:
    """Accuracy, C_R and C_S in percent; the interval is over items, the deviation over seeds."""
    rows = read(file, row, task).iter_rows(named=True)
    found = {(each["metric"], each["subset"]): each for each in rows}
    return {
        (GROUPS[task], row, column): Measured(
            *(100 * found[name][each] for each in ("value", "std", "low", "high"))
        )
        for column, name in COLUMNS.items()
        if name in found
    }


def results(rows: Sequence[str], tasks: Sequence[str], work: Work) -> Found:
    """Accuracy, C_R and C_S of every row on every task."""
    trial, numbers = Trial(work, [GROUPS[task] for task in tasks]), dict[Key, Measured]()
    for row in rows:
        for task in tasks:
            make = partial(asked_people, trial) if row == HUMAN else partial(ask, trial, row)
            if run := trial.make(row, GROUPS[task], partial(make, task)):
                numbers |= measured(run, row, task)
    return trial.found(numbers)


def examples(table: str, work: Work) -> Found:
    """Answers that a perturbation changed, the surest of both first, as notes."""
    model, shown, count = EXAMPLES[table]
    trial, notes = Trial(work), []
    for task, form in shown:
        part = GROUPS[task]
        run = trial.make(model, part, partial(ask, trial, model, task))
        if run is None:
            continue
        group = task + (GENERATED if model in WRITERS else "")
        written = pl.read_csv(run / "inconsistent.csv", infer_schema=False)
        rows = texts_of(written).fill_null("").to_dicts()
        changed = [each for each in rows if (each["group"], each["perturbation"]) == (group, form)]
        notes += [
            f"{part}, {form}, gold {each['gold']}:\n"
            f"  {each['original_1']} {each['original_2']} -> {each['original_answer']}\n"
            f"  {each['text_1']} {each['text_2']} -> {each['answer']}"
            for each in changed[:count]
        ] or [f"{part}, {form}: no answer changed"]
    return trial.found({}, *notes)


def sizes(work: Work) -> Found:
    """Pairs of each set, in thousands where the paper prints thousands; classes of each task."""
    trial, numbers = Trial(work, list(SIZES)), dict[Key, Measured]()
    rounded = paper_numbers("calum-table-1").filter(pl.col("unit") == "thousand")
    thousands = set(rounded.select("row", "column").iter_rows())
    for task, row in GROUPS.items():
        numbers["", row, "# of classes"] = Measured(len(TASKS[task].labels))
        for column, split in SIZES.items():
            count = trial.make(row, column, partial(count_pairs, work, task, split))
            if count is not None:
                numbers["", row, column] = Measured(
                    count / 1000 if (row, column) in thousands else count
                )
    return trial.found(
        numbers,
        "KLUE: validation and test are the halves of its validation set",
        "KorNLI: the released set has 2,490 pairs for validation and 5,010 for test; the paper "
        "drew its test set from the training set, and its numbers are not those of the release",
    )


UNLABELLED = re.compile(r"none of (\d+) rows has a label")
"""What is found where a set has no labels, as the test sets of GLUE."""


def count_pairs(work: Work, task: str, split: str) -> int:
    """How many pairs a set has: those with a label, or all where none has one."""
    halved = is_halved(work, task) and split != "train"
    source = source_of(work, task, "validation" if halved else split)
    if work.dry:
        raise MissingError(NOT_RUN)
    try:
        pairs = read_pairs(source, TASKS[task])
    except ConsilienceError as error:
        if (unlabelled := UNLABELLED.fullmatch(error.found)) is None:
            raise MissingError(f"{NOT_HERE}: {error}") from error
        return int(unlabelled[1])
    return len((half_of(pairs, SPLITS.index(split), 0) if halved else pairs).items)


def t_tests(work: Work) -> Found:
    """The claims of Section 5.1.1 by three t-tests, from the paper's Table 2 and from our runs."""
    kinds = {name: task.kind for name, task in TASKS.items()}
    numbers = dict[Key, Measured]()
    ours = our_rows(work, [*MODELS], CALUM)
    for whose, rows in (("", paper_rows("calum-table-2")), (", our runs", ours)):
        seen: list[set[str]] = [set()]
        for which, left_out in SELECTIONS.items():
            chosen = rows.filter(~pl.col("model").is_in(left_out))
            if (models := set(chosen["model"])) in seen:
                continue
            seen.append(models)
            effects = task_effects(chosen, kinds).filter(pl.col("metric") == "consistency")
            for (group, row), (subset, second) in CLAIMS.items():
                same = (pl.col("subset") == subset) & (pl.col("second") == second)
                for each in effects.filter(same).iter_rows(named=True):
                    name = (group, f"{row}{whose}{which}")
                    numbers[*name, f"p ({each['test']})"] = Measured(each["p"], unit="p")
    for name in CLAIMS:
        numbers[*name, "p (t-test)"] = numbers.pop((*name, "p (paired)"))
    note = (
        "the paper does not name its t-test: beside its level stands p of the paired one, over "
        "models, on its own Table 2 without T5 and people"
    )
    return Found(numbers, [note, *_runs_of(ours)])


def gain(work: Work) -> Found:
    """Mean relative gain in C_R of training on more tasks, from Table 6 and from our runs."""
    numbers = dict[Key, Measured]()
    ours = our_rows(work, TABLE_6, NLI)
    for whose, rows in (("", paper_rows("calum-table-6")), (", our runs", ours)):
        for after in (("Para", "All"), ("Para",), ("All",)):
            pairs = [
                (f"{model}-Single", f"{model}-{each}") for model in BACKBONES for each in after
            ]
            pairs = [each for each in pairs if set(each) <= set(rows["model"])]
            if {parts_of(second)[1] for _, second in pairs} != {*after}:
                continue
            changes = gains(rows, *zip(*pairs, strict=True)).to_dicts() if pairs else []
            for each in changes:
                if (each["metric"], each["subset"]) == COLUMNS["C_R"]:
                    row = f"{' and '.join(after)} vs Single{whose}"
                    found = Measured(100 * each["relative"], unit="percent")
                    numbers["REVERSE", row, "C_R gain"] = found
    note = "13 is the gain of Para, of which the abstract speaks; Section 6.2 says it of both"
    return Found(numbers, [note, *_runs_of(ours)])


VALUES = {name: RUNS_SCHEMA[name] for name in LONG}


def paper_rows(table: str) -> pl.DataFrame:
    """The paper's numbers of Table 2, 5 or 6 (``VALUES``), as fractions."""
    tasks = {group: task for task, group in GROUPS.items()}
    rows = [
        (row["row"], tasks[row["group"]], *COLUMNS[row["column"]], row["value"] / 100)
        for row in paper_numbers(table).iter_rows(named=True)
    ]
    return pl.DataFrame(rows, schema=VALUES, orient="row")


def our_rows(work: Work, rows: Sequence[str], tasks: Sequence[str]) -> pl.DataFrame:
    """Our numbers (``VALUES``) of the runs that are there, with what they note for their reader.

    A run of another file than is given raises.
    """
    found = []
    for row, task in itertools.product(rows, tasks):
        run = place_of(work, row, task) / "run"
        if not (run / "metrics.csv").is_file():
            continue
        given = work.data.get(f"{task}:validation")
        for record in map(record_of, sorted(each.parent for each in run.glob("**/run.json"))):
            asked = record["asked"]
            if given and asked.get("pairs") != _digest(given, work, task):
                raise ConsilienceError(
                    f"this folder holds another run: its data is {record.get('data')}, now asked "
                    f"is {given}",
                    where=str(run),
                    todo=f"{OTHER_OUT}, or remove the folder.",
                )
            if not given and not str(record.get("data")).startswith(f"{HUB}:"):
                work.note(row, GROUPS[task], [f"its pairs are of {record.get('data')}"])
            if asked.get("limit") is not None:
                work.note(row, GROUPS[task], [f"of at most {asked['limit']} pairs"])
            work.note(row, GROUPS[task], record.get("warnings", ()))
        found.append(read(run / "metrics.csv", row, task).select(list(VALUES)))
    return pl.concat([pl.DataFrame(schema=VALUES), *found])


def _digest(file: str, work: Work, task: str) -> str:
    """What tells the pairs of a validation set that would be asked from any others."""
    pairs = read_pairs(file, TASKS[task])
    return (half_of(pairs, 1, 0) if is_halved(work, task) else pairs).digest


def _runs_of(rows: pl.DataFrame) -> list[str]:
    """Which runs our numbers are of."""
    found: dict[str, list[str]] = {}
    for model, task in rows.select("model", "task").unique(maintain_order=True).iter_rows():
        found.setdefault(model, []).append(GROUPS[task])
    told = [f"{model} on {', '.join(tasks)}" for model, tasks in found.items()]
    return [f"our runs: {'; '.join(told)}"] if told else []


def people(work: Work) -> Found:
    """Sheets for people, and what people answered where they did."""
    trial, numbers = Trial(work), dict[Key, Measured]()
    drawn, answered = [], []
    for task, part in GROUPS.items():
        if sheets := trial.make(HUMAN, part, partial(draw_sheets, trial, task)):
            key = json.loads((sheets / "key.json").read_text(encoding="utf-8"))
            items = len(key["items"])
            if file := trial.make(HUMAN, part, partial(score_people, trial, task)):
                annotators = len({*pl.read_csv(file)["group"]} - {task})
                found = measured(file, HUMAN, task).items()
                numbers |= {name: replace(each, unit="percent") for name, each in found}
                answered.append((annotators, items))
            drawn.append(f"{part}: {len(key['sheets'])} sheets of {items} pairs")
    if answered:
        annotators, items = map(min, zip(*answered, strict=True))
        numbers["", HUMAN, "Annotators per language"] = Measured(annotators)
        numbers["", HUMAN, "Samples per annotator"] = Measured(items)
    return trial.found(
        numbers,
        *([f"drawn: {'; '.join(drawn)}"] if drawn else []),
        f"sheets: {work.own / 'calum' / 'sheets'}, a folder a task; each annotator fills in a "
        "page or a table, the tables go back there, and this recipe scores them; the paper's "
        "numbers of people stand in calum-table-2 and calum-table-5",
    )


def draw_sheets(trial: Trial, task: str) -> Path:
    """The folder of a task's sheets; they are drawn where there are none.

    Those that were drawn from other pairs raise.
    """
    work, sheets = trial.work, sheets_of(trial.work, task)
    if f"{task}:answers" in work.data:
        if not (sheets / "key.json").is_file():
            raise MissingError(f"{NOT_HERE}: {sheets}: no key.json of sheets")
        return sheets
    source = trial.source(task, "validation")
    asked = ("--task", task, "--data", source, "--out", sheets)
    trial.run(HUMAN, GROUPS[task], "annotate", "sheet", *asked)
    if work.dry:
        raise MissingError(NOT_RUN)
    return sheets


GLUE = "MNLI, QNLI, RTE, QQP and MRPC"
KOREAN_DATA = "KorNLI (training set as a file), KLUE-NLI and KLUE-STS"
EACH = "each minutes (RTE, MRPC) to hours (MNLI, QQP) on an accelerator"

_BACKBONES = {model: MODELS[model] for model in BACKBONES}
_Row = tuple[str, str, str, Mapping[str, str], Callable[[Work], Found], str]
_RECIPES: Sequence[_Row] = (
    (
        "calum-table-1", "Data sets and classes", f"{GLUE}, {KOREAN_DATA}; minutes", {}, sizes, "",
    ),
    (
        "calum-table-2", "Accuracy and consistency, English",
        f"{GLUE}, 9 models, people; 7 times 25 trainings, {EACH}", MODELS,
        partial(results, (*MODELS, HUMAN), CALUM), "",
    ),
    (
        "calum-table-5", "Accuracy and consistency, Korean",
        f"{KOREAN_DATA}, 4 models, people; 4 times 15 trainings, "
        "each minutes (KLUE-STS) to hours (KorNLI) on an accelerator",
        KOREAN_MODELS, partial(results, (*KOREAN_MODELS, HUMAN), KOREAN), "",
    ),
    (
        "calum-table-6", "Training on several tasks",
        f"{GLUE}, 3 models; 3 times 45 trainings, a third of them those of Table 2, {EACH}",
        _BACKBONES, partial(results, TABLE_6, NLI), "",
    ),
    *(
        (
            f"calum-table-{number}", f"Answers of {model} that changed",
            f"{', '.join(GROUPS[task] for task, _ in shown)}, {model}; the runs of Table 2",
            {model: MODELS[model]}, partial(examples, number), "",
        )
        for number, (model, shown, _) in EXAMPLES.items()
    ),
    (
        "calum-t-tests", "Kinds of tasks (Section 5.1.1)",
        "nothing; with runs of Table 2 the same of them", MODELS, t_tests, "calum-section-5.1.1",
    ),
    (
        "calum-gain", "Gain in consistency (Section 6.2)",
        "nothing; with runs of Table 6 the same of them", _BACKBONES, gain, "calum-section-6.2",
    ),
    (
        "calum-human", "How people answer (Section 4.4)",
        f"the validation sets of {GLUE}, {KOREAN_DATA}; 5 people a language, an hour a task",
        {}, people, "calum-section-4.4",
    ),
)  # fmt: skip
for _name, _title, _needs, _models, _make, _table in _RECIPES:
    recipe(_name, _title, _needs, _table, _models, FILES)(_make)
