"""The suite and the protocol that a run's answers are counted by."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from consilience import suites
from consilience.core.errors import ConsilienceError, Protocol
from consilience.core.factors import Factor, FactorialDesign
from consilience.files.tables import as_text
from consilience.runs.folder import digest_of
from consilience.runs.run import Run, text_digests
from consilience.sentence_pairs import Task
from consilience.suites.facts import (
    select_languages,
    with_asked_patterns,
    without_perturbed_patterns,
)
from consilience.suites.pairs import generated_group, suite_of_task, task_of_table
from consilience.suites.question_suites import (
    GroupOfQuestions,
    load_questions,
    suite_of_questions,
)
from consilience.types import Fact, Suite
from consilience.workflow.scoring_answers import with_facts


def suite_of(
    run: Run, name: str | None, protocol: Protocol | None, data_dir: Path | None
) -> tuple[Suite, Protocol]:
    """The suite called ``name`` and ``protocol``; where one is None, that of the run.

    A run of sentence pairs or of questions raises.
    """
    refuse_pairs(run)
    settings = run.settings
    if name is None and "suite" not in settings:
        raise ConsilienceError(
            "not the folder of a run, which would tell its suite",
            where=str(run.path),
            todo="Name the folder of a run, or of a table of answers the suite: --suite S.",
        )
    folder = str(run.record.get("suite_source", {}).get("folder", ""))
    source = (
        folder if folder and data_dir is None and Path(folder).is_dir() else settings.get("suite")
    )
    as_shipped = bool(settings.get("as_shipped"))
    suite = suites.load_suite(name or str(source), data_dir, as_shipped=as_shipped)
    if settings.get("languages"):
        suite = select_languages(suite, settings["languages"])
    if settings.get("perturbations"):
        suite = with_asked_patterns(suite, run.seeds[0].answers, settings["perturbations"])
    if not run.record and "as_questions" not in run.answers.columns:
        with_facts(as_text(run.answers), suite)  # a table of somebody: its rows are the suite's
    return suite, protocol or run.protocol or suite.protocol


def any_suite_of(
    run: Run, name: str | None, protocol: Protocol | None, data_dir: Path | None
) -> tuple[Suite, Protocol]:
    """As ``suite_of``; a run of sentence pairs or of questions says itself what it was asked."""
    if not run.is_of_pairs and not run.is_of_questions:
        return suite_of(run, name, protocol, data_dir)
    options = {"--suite": name, "--protocol": protocol, "--data-dir": data_dir}
    kind = "sentence pairs" if run.is_of_pairs else "questions"
    for flag, value in options.items():
        if value is not None:
            raise ConsilienceError(
                f"{flag} with runs of {kind}",
                expected=f"none: the run says which {kind} it was asked",
                todo="Leave it out.",
            )
    return (task_suite_of_run if run.is_of_pairs else question_suite_of_run)(run), "strict"


def design_of_run(run: Run) -> FactorialDesign:
    """The variants that a run of questions was asked."""
    factors = [Factor(name, tuple(levels)) for name, levels in run.settings["factors"].items()]
    return FactorialDesign(tuple(factors), tuple(map(tuple, run.settings["cells"])))


def question_suite_of_run(run: Run) -> Suite:
    """The suite of a run of questions: its groups in the variants that were asked."""
    items = (
        run.seeds[0]
        .answers.select("group", "item", "gold", "gold_option")
        .unique(["group", "item"], keep="first", maintain_order=True)
        .partition_by("group", as_dict=True)
    )
    groups = []
    for name, options in run.settings["options"].items():
        rows = items.get((name,))
        known = rows.iter_rows(named=True) if rows is not None else ()
        facts = [(Fact(row["item"], row["item"], row["gold"]), row["gold_option"]) for row in known]
        golds = tuple(gold for _, gold in facts if options)
        writes_freely = name in run.settings["written"]
        groups.append(
            GroupOfQuestions(name, tuple(fact for fact, _ in facts), golds, options, writes_freely)
        )
    name, design = run.settings["suite"], design_of_run(run)
    return suite_of_questions(name, groups, design, run.expectations)


def task_of_run(run: Run) -> Task:
    """The task that a run was asked."""
    fields = run.settings.get("task", {})
    known = {name: value for name, value in fields.items() if value is not None}
    return task_of_table(known, str(run.seeds[0].path / "run.json"))


def task_suite_of_run(run: Run) -> Suite:
    """The suite of a run of sentence pairs: its task in the forms that were asked."""
    task, answers = task_of_run(run), run.seeds[0].answers
    forms = answers.select("variant", "variant_index").unique().sort("variant_index")
    if forms.is_empty() or forms["variant_index"][0] != 0:
        raise ConsilienceError("no answers to the original form", where=str(run.path))
    writes_freely = generated_group(task) in answers["group"]
    return suite_of_task(task, forms["variant"].to_list(), writes_freely=writes_freely)


def refuse_pairs(run: Run) -> None:
    """Raise for a run of sentence pairs, of one model or of several seeds, or of questions."""
    if run.is_of_questions:
        raise ConsilienceError(
            "a run of questions",
            expected="a run of facts",
            where=str(run.path),
            todo="`consilience score`, `compare`, `report`, `analyze factors` and `analyze "
            "expectations` take such runs.",
        )
    if run.is_of_pairs:
        several = f" with {len(run.seeds)} seeds" if run.parts else ""
        raise ConsilienceError(
            f"a run of sentence pairs{several}",
            expected="a run of probe",
            where=str(run.path),
            todo="Its changed answers are in inconsistent.csv; `consilience compare`, `consilience "
            "report` and `consilience analyze tasks` take such runs.",
        )


def source_of(suite: Suite, spec: str, data_dir: Path | None) -> dict[str, str]:
    """Where a whole suite is and what it is, for the record of a run: its name may not tell."""
    folder = suites.suite_folder(spec, suites.data_dir(data_dir)).resolve()
    return {"folder": str(folder), "digest": suite.digest}


def suite_notes(run: Run, suite: Suite) -> list[str]:
    """A note where the suite is not as it was when a run was asked; none where it is gone.

    ``suite``: the whole suite that the run is counted by.
    """
    source, effect = dict(run.record.get("suite_source", {})), "numbers may differ"
    if run.is_of_pairs or run.is_of_questions:
        file, effect = source.pop("file", ""), "numbers are of the old texts and gold answers"
        is_same = not file or not Path(file).exists() or _is_as_asked(run, Path(file), source)
    else:
        digest = without_perturbed_patterns(suite).digest
        is_same = source.get("digest", digest) == digest
    name = "the file of sentence pairs" if run.is_of_pairs else f"the suite '{suite.name}'"
    return [] if is_same else [f"{name} is not as it was when {run.label} was asked; {effect}"]


def _is_as_asked(run: Run, path: Path, source: Mapping[str, str]) -> bool:
    """Whether a file or folder still has the pairs or questions that a run was asked."""
    if run.is_of_pairs:
        return not path.is_file() or digest_of(path) == source.get("sha256")
    try:
        texts = text_digests(load_questions(path, source).items, design_of_run(run))
    except (ConsilienceError, ValueError):
        return False
    return {*run.texts.values()} <= {*texts.values()}


def protocol_notes(run: Run, protocol: Protocol) -> list[str]:
    """What a reader of numbers by ``protocol`` should know of a run asked under another one."""
    if run.protocol in (None, protocol):
        return []
    return [
        f"the run was asked under {run.protocol}, which decided the token of each candidate; for "
        f"{protocol} throughout, probe with --protocol {protocol}"
    ]
