"""Evaluate a model from Python, and the numbers of a run as they are printed."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, asdict, dataclass, fields, replace
from os import PathLike
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, cast

import polars as pl

from consilience import probing
from consilience.analysis.patterns import pattern_table
from consilience.analysis.rules import reread, written_answers
from consilience.core.errors import SILENT, By, ConsilienceError, Progress, Protocol
from consilience.elsewhere import kept, made_of, open_runs
from consilience.endpoints import cost_in_words
from consilience.files.rows import as_polars, frame_rows, text_of
from consilience.files.write import path_of, write_whole
from consilience.metrics.measure import legible
from consilience.models import LanguageModel
from consilience.models.functions import Function
from consilience.options import checked, parameters, refuse_unknown, typed
from consilience.options.commands import ProbeOptions, ScoreOptions
from consilience.plans import Kind, kind_of, plan_of
from consilience.probing import CountedRun, count_run, counted_by, save_counted
from consilience.report import layouts
from consilience.report.table import Column, Output, Table, frame_table, record_of
from consilience.results.comparing import Comparison, compare_opened, tables_of
from consilience.results.reporting import Result, distinct_runs
from consilience.runs.folder import RunFolder
from consilience.runs.run import Run
from consilience.suites.pairs import load_task
from consilience.suites.question_suites import columns_of
from consilience.suites.questions import Questions
from consilience.types import WORDS, Suite

Frame = Any  # of pandas or polars

Texts = Callable[[Any], Any]  # A function from a text to a text, or from texts to texts

if TYPE_CHECKING:

    @dataclass(frozen=True)
    class Evaluation(ProbeOptions):
        """The options of ``evaluate``: those of ``probe``, some of which may be values."""

        suite: str | Path | Suite | Questions | Frame = "mini"  # type: ignore[assignment]
        model: str | Path | LanguageModel | Texts = "packaged:smollm2"  # type: ignore[assignment]
        _: KW_ONLY
        progress: Progress = SILENT
else:
    Evaluation = ProbeOptions


@typed(Evaluation)
def evaluate(
    suite: str | Path | Suite | Questions | Frame = "mini",
    model: str | Path | LanguageModel | Texts = "packaged:smollm2",
    *,
    progress: Progress = SILENT,
    **options: Any,
) -> Result:
    """Ask a model every item of a suite in every variant, and measure its answers.

    - ``suite``: a name, a folder, a file of questions, a ``Suite``, ``Questions``, or a pandas or
      polars frame or a list of dictionaries of questions (``Questions.from_frame``).
    - ``model``: what the command line takes, a loaded ``LanguageModel``, or a function from a text
      to a text or from a list of texts to a list of texts (``Function``). It may be async.
    - ``options``: those of ``consilience probe``, such as ``limit=8``, ``groups=["capital"]`` and
      ``vary={"order": "rotations"}``. ``columns`` may be a dictionary.
    - ``out``: keeps the run in this folder. The same call resumes it, and ``open_run`` reads it.
      Without one the run is in a temporary folder, which lives as long as the result.
    - ``progress``: shows what is done; by default nothing is shown.

    >>> result = evaluate("mini", "baseline:majority", limit=8)
    >>> result.metrics.filter(metric="accuracy", over="mean")["value"].round(3).item()
    0.183
    """
    fields, chosen, loaded = _values_of(suite, model, options)
    temporary, function = None, getattr(loaded, "function", None)
    if fields.get("out") is None:
        temporary = TemporaryDirectory(prefix="consilience-")
        fields["out"] = Path(temporary.name, "run")
    elif function and getattr(function, "__name__", "<lambda>") == "<lambda>":
        expected = "a function with a name (def), because a kept run is resumed by it"
        raise ConsilienceError("a function without a name, and a folder", expected=expected)
    probed = probing.probe(ProbeOptions(**fields), progress, suite=chosen, model=loaded)
    return _result_of(probed, Run.open(probed.record["path"]), temporary)


def suite_to_ask(suite: str | Path | Suite | Questions | Frame, **options: Any) -> Suite:
    """The groups, items and variants that ``evaluate`` would ask; no model is loaded."""
    fields, chosen, _ = _values_of(suite, options.pop("model", "baseline:majority"), options)
    return plan_of(ProbeOptions(**fields), chosen).suite


def open_run(path: str | Path, *, protocol: Protocol | None = None) -> Result:
    """The result of a run that is kept in a folder; its answers are counted again."""
    run = Run.open(path).named_by_model()
    return _result_of(counted_again(run, protocol), run)


def counted_again(
    run: Run, protocol: Protocol | None, answers: pl.DataFrame | None = None
) -> CountedRun:
    """The numbers of a run by its protocol or another one, with its notes.

    ``answers``: those of the run, where they are in memory.
    """
    suite = counted_by(run, protocol)
    counted = count_run(run, suite, answers)
    record = record_of(run=str(run.path), suite=suite.name, protocol=suite.protocol)
    return replace(counted, record={**record, "finished": run.record.get("finished")})


def scored(options: ScoreOptions) -> CountedRun:
    """The numbers of a run, counted again, or of answers of other programs."""
    path = options.answers
    if (path / "run.json").exists():
        for name in ("columns", "suite", "model", "out"):
            if getattr(options, name):
                found, todo = f"--{name} with a run", f"Leave --{name} out."
                raise ConsilienceError(found, expected="a file of answers", todo=todo)
        run = Run.open(path).named_by_model()
        answers = reread(written_answers(run), options.match) if options.match else None
        return counted_again(run, options.protocol, answers)
    with TemporaryDirectory(prefix="consilience-") as temporary:
        made = made_of(options)
        run = kept(made, options, options.out or Path(temporary, "run")).named_by_model()
        counted = counted_again(run, options.protocol, made.answers)
        if options.out is not None:
            return save_counted(counted, RunFolder(options.out, run.settings))
    match = run.settings["writing"]["match"]
    record = record_of(answers=str(path), suite=run.suite.name, protocol=run.protocol, match=match)
    return replace(counted, record=record)


def score(
    answers: Any,
    suite: str | Path | None = None,
    *,
    columns: Mapping[str, str] | None = None,
    model: str | None = None,
    match: str | None = None,
    protocol: Protocol | None = None,
) -> Result:
    """Measure answers that other programs made. No model is needed.

    - ``answers``: a pandas or polars frame, a list of dictionaries, a file, a folder of logs or of
      a run. Rows have ``item``, ``gold``, ``answer``, and a column for each factor.
    - ``suite``: what was exported, if the rows have only ids, or a suite of facts.
    - ``columns``: what they are called: ``{"item": "Nr.", "template": "doc.style"}``.
    - ``model``: whose answers, where a file has those of several.
    - ``match``: the rule that finds an option, label or object in an answer (docs/free-text.md).

    >>> answers = {("France", "short"): "Paris", ("France", "long"): "Lyon"}
    >>> rows = [
    ...     {"item": item, "template": template, "gold": "Paris", "answer": answer}
    ...     for (item, template), answer in answers.items()
    ... ]
    >>> result = score(rows)
    >>> result.metrics.filter(metric="consistency", over="all", kind="whole")["value"].item()
    0.0
    """
    temporary = TemporaryDirectory(prefix="consilience-")
    is_path = isinstance(answers, str | PathLike)
    path = path_of(answers, "the answers") if is_path else _written(answers, temporary)
    named = None if suite is None else str(suite)
    options = ScoreOptions(
        path, columns=columns or None, suite=named, model=model, match=match, protocol=protocol
    )
    if (path / "run.json").exists():
        return _result_of(scored(options), Run.open(path), temporary)
    made = made_of(options)
    run = kept(made, options, Path(temporary.name, "run")).named_by_model()
    return _result_of(counted_again(run, protocol), run, temporary)


def compare(*runs: Any) -> Comparison:
    """Later runs against the first: paired differences with intervals.

    A run is a result, a ``Run``, or a folder, also of the logs of several models. One dictionary
    from labels to runs names them.

    >>> majority = evaluate("mini", "baseline:majority", limit=8)
    >>> changes = compare(evaluate("mini", "baseline:oracle", limit=8), majority).table
    >>> changes.filter(metric="accuracy", over="mean")["difference"].round(3).item()
    -0.817
    """
    if len(runs) == 1 and isinstance(runs[0], Mapping):
        named = zip(runs[0], distinct_runs([*runs[0].values()]), strict=True)
        opened = [replace(run, label=label) for label, run in named]
    elif len(runs) == 1 and isinstance(runs[0], str | PathLike):
        opened = open_runs([str(runs[0])])
    else:
        opened = distinct_runs(runs)
    if not opened:
        raise ConsilienceError("0 run to compare", expected="one run or more")
    return compare_opened(opened)


def _values_of(
    suite: object, model: object, options: Mapping[str, Any]
) -> tuple[dict[str, Any], Suite | Questions | None, LanguageModel | None]:
    """The fields of ``ProbeOptions``, the suite and the model; None for one that is a name."""
    refuse_unknown(parameters(ProbeOptions), options)
    fields = dict(options)
    given = checked(ProbeOptions, {"columns": fields.pop("columns", None)})["columns"]
    columns = columns_of(given)
    is_name = isinstance(suite, str | PathLike)
    chosen = None if is_name else _chosen(suite, columns)
    if is_name and columns:
        fields["columns"] = given
    fields["suite"] = chosen.name if chosen is not None else suite
    loaded: LanguageModel | None = None
    if not isinstance(model, str | Path):
        kind = kind_of(str(suite) if chosen is None else chosen, fields.get("as_questions"))
        loaded = _model_of(model, kind, fields)
    fields["model"] = str(loaded.identity["model"]) if loaded is not None else model
    return fields, chosen, loaded


def _chosen(suite: object, columns: Mapping[str, str]) -> Suite | Questions:
    if isinstance(suite, Questions | Suite):
        if columns:
            expected, todo = "a frame or a file of questions", "Leave columns out."
            raise ConsilienceError(f"columns with {suite!r}", expected=expected, todo=todo)
        if not len(suite):
            kind = "relation" if isinstance(suite, Suite) else "question"
            raise ConsilienceError(f"no {kind} in the suite", where=f"the suite '{suite.name}'")
        return suite
    if isinstance(suite, list):
        suite = as_polars(suite, "the suite")
    if not hasattr(suite, "columns"):
        expected = "the name of a suite, a folder, a Suite, Questions, or a frame of questions"
        raise ConsilienceError(f"a suite of type {type(suite).__name__}", expected=expected)
    if {"subject", "object"} <= set(suite.columns):
        expected = "a frame of questions, with the columns question and answer"
        todo = "Make a suite of it with cs.Suite.from_frame(frame)."
        raise ConsilienceError("a frame of facts", expected=expected, todo=todo)
    return Questions.from_frame(suite, columns=columns)


def _model_of(model: Any, kind: Kind, options: Mapping[str, Any]) -> LanguageModel:
    """A model that is no name: as it is, or made of a function."""
    method = "score" if kind == "facts" else "text"
    fits = hasattr(model, method) and getattr(model, "kind", kind) == kind
    if fits and hasattr(model, "identity"):
        return cast(LanguageModel, model)
    if hasattr(model, "identity") or hasattr(model, "forward") or not callable(model):
        found = f"a model of type {type(model).__name__} with {WORDS[kind].item}s"
        expected = "a name, a folder, or a function from texts to texts"
        raise ConsilienceError(found, expected=expected)
    labels = load_task(str(options["suite"])).labels if kind == "pairs" else ()
    return Function(model, labels, options.get("template") if kind == "facts" else None)


def _result_of(
    of: CountedRun, run: Run, temporary: TemporaryDirectory[str] | None = None
) -> Result:
    counted = {one.name: getattr(of, one.name) for one in fields(of)}
    return Result(**counted, run=run.named_by_model(), temporary=temporary)


def _written(answers: Any, temporary: TemporaryDirectory[str]) -> Path:
    """A file with the answers of a frame."""
    frame = frame_rows(answers, "the answers table")
    rows = (
        {name: of if isinstance(of, Mapping) else text_of(of) for name, of in row.items()}
        for _, row in frame
    )
    path = Path(temporary.name, "answers.jsonl")
    lines = ([json.dumps(row, ensure_ascii=False, default=text_of), "\n"] for row in rows)
    write_whole(path, lambda: (part.encode() for line in lines for part in line))
    return path


def output_of(run: CountedRun, options: ScoreOptions | None = None) -> Output:
    """The summary of a run with what to do next, or the table of ``--by``.

    ``options``: those of ``score``, whose answers may be those of other programs.
    """
    path, lines, again = run.record.get("path"), list[str](), ""
    table = run.summary.table()
    if options is not None:
        path = options.answers if (options.answers / "run.json").exists() else path
        again = f" --protocol {options.protocol}" if options.protocol else ""
        table = _table_by(options.by, run, options.answers) if options.by else table
    by, *others = tables_of(run.suite)
    report, details = "add --out RUN, then consilience report RUN", f"add --by {by}"
    if path:
        named = shlex.quote(str(path))
        report = f"consilience report {named}"
        details = f"consilience score {named}{again} --by {by}"
    if cost := run.record.get("cost"):
        lines.append(f"Cost:    {cost_in_words(cost)}")
    lines += [f"Report:  {report}", f"Details: {details}  (or {', '.join(others)})"]
    is_whole = options is None or options.by is None
    return Output(
        {"metrics": run.metrics},
        [table, *lines] if is_whole else [table],
        cautions=run.notes,
        facts={"run": run.record, "summary": asdict(run.summary)},
        csv=None if is_whole else table,
        status=3 if run.record.get("finished", "") is None else 0,
    )


def _table_by(by: By, run: CountedRun, path: Path) -> Table:
    """The table of ``--by``; one that the suite does not have raises.

    ``path``: the folder of the run, which has the texts of its items, or a file of answers.
    """
    suite, title, metrics = run.suite, f"{run.summary.title}, in percent", legible(run.metrics)
    words, tables = suite.words, tables_of(suite)
    by = "pattern" if by == "variant" and "pattern" in tables else by
    if by not in tables:
        expected = f"--by {', '.join(tables[:-1])} or {tables[-1]}"
        raise ConsilienceError(f"--by {by} with the suite '{suite.name}'", expected=expected)
    over = ["mean", "all"] if words.has_means else [words.over]
    rows, kind = metrics.filter(pl.col("over").is_in(over)), pl.col("kind")
    match by:
        case "group":
            return layouts.group_table(metrics, suite)
        case "pattern" | "variant":
            patterns = pattern_table(run.checked, suite, run.protocol)
            blocks = patterns["group"].replace(suite.group_names).to_list()
            shown = patterns.select("variant", "accuracy", "agreement", "n")
            title = f"{suite.name}: each {words.variant}, in percent"
            named = {"variant": Column(words.variant), "n": Column(f"{words.item}s", "count")}
            columns = {**layouts.PATTERNS, **named}
            return frame_table(shown, title, columns, blocks=blocks)
        case "item":
            items = run.items
            if (path / "run.json").exists():
                every, keys = Run.open(path).texts().items(), items.select("group", "item").rows()
                texts = {name[:2]: text for name, text in reversed([*every])}
                prompts = [texts.get(key, "") for key in keys]
                asked = layouts.in_one_line(prompts, shared=len(prompts) > 1)
                items = items.with_columns(asked=pl.Series(asked, dtype=pl.String))
            return layouts.item_table(items, f"{suite.name}: each {words.item}, in percent")
        case "form":
            chosen = layouts.form_rows(metrics)
        case "metric":
            is_main = (kind == "whole") | (
                (pl.col("metric") != "determinism") & (over[0] != "group")
            )
            chosen = rows.filter(is_main, kind != "language")
        case "factor" if not words.is_pooled:
            chosen = layouts.language_rows(metrics)
        case _:
            chosen = rows.filter(metric="consistency", kind=by)
    return layouts.metrics_table(chosen, title, words.clusters if by == "form" else words.units)
