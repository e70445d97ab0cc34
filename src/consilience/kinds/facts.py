"""Facts: relations whose facts are asked in all patterns (ParaRel)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import asdict, replace
from functools import cached_property, partial
from itertools import product
from pathlib import Path
from typing import Any

import polars as pl

from consilience import suites
from consilience.analysis.examples import KINDS
from consilience.asking.asker import Progress
from consilience.asking.facts import ask, query_counts
from consilience.core.errors import SILENT, ConsilienceError, Loading, Protocol, Watch
from consilience.core.free_text import rule_of
from consilience.core.text import spread
from consilience.kinds import base
from consilience.kinds.answers import answers_to_facts, model_of_answers, recorded, with_facts
from consilience.metrics.counts import prepare, unknown_answers
from consilience.models import LanguageModel, load_model
from consilience.models.functions import TextFunction
from consilience.options.probe import ProbeOptions
from consilience.options.runs import ScoreOptions
from consilience.report.run_view import BLANK as SHOWN_BLANK
from consilience.runs.folder import RunFolder
from consilience.runs.run import Run
from consilience.suites import facts as selection
from consilience.suites.layouts import save_suite
from consilience.suites.question_suites import BLANK
from consilience.suites.questions import Questions
from consilience.types import FACT_WORDS, Suite


class Facts(base.Inquiry):
    """Facts in all patterns of their relations."""

    kind = "facts"
    a_suite = "a suite of facts"
    words = FACT_WORDS
    unit = "queries"
    example_kinds = tuple(KINDS)
    is_same_for_models = True
    method, takes = "score", "prompts to texts, or what load_model gives"

    @classmethod
    def accepts(cls, suite: base.SuiteValue) -> bool:
        return True

    def __init__(
        self, options: ProbeOptions, watch: Watch = SILENT, suite: Any = None, model: Any = None
    ) -> None:
        if suite is None:  # an unknown name is no suite of facts that has other options
            suites.suite_folder(options.suite, suites.data_dir(options.data_dir))
        super().__init__(options, watch, suite, model)
        if options.keep_scores and options.candidates == "vocabulary":
            raise ConsilienceError(
                "--keep-scores with the whole vocabulary",
                expected="--candidates objects: a vocabulary's scores of a suite fill a disk",
            )
        self.whole, self.is_open = suite, options.candidates == "vocabulary"
        self.languages = _languages_of(options.vary) if options.vary else None
        self.suite, self.source = self._chosen()
        self.protocol = options.protocol or self.suite.protocol

    def _chosen(self) -> tuple[Suite, dict[str, str]]:
        """The chosen groups and facts, and where the suite in its languages is."""
        options = self.options
        suite = self.whole or suites.load_suite(options.suite, options.data_dir)
        if self.languages is not None:
            suite = selection.select_languages(suite, self.languages)
        source = {"digest": suite.digest}
        if self.whole is None:
            source = _source_of(suite, options.suite, options.data_dir)
        if options.groups is not None:
            suite = selection.select_relations(suite, options.groups)
        if options.single_token is not None:
            suite = self._one_token(suite, options.single_token)
        if options.limit:
            suite = selection.sample_facts(suite, options.limit, options.seed)
        return suite, source

    def _one_token(self, suite: Suite, names: Sequence[str]) -> Suite:
        from consilience.models.candidates import count_pieces
        from consilience.models.loading import load_tokenizer

        loading = Loading(trust_remote_code=self.options.loading.trust_remote_code)
        with self.watch.loading(""):  # the rest of the options is of one model
            pieces = {name: partial(count_pieces, load_tokenizer(name, loading)) for name in names}
            return selection.filter_vocabulary(suite, pieces)

    @cached_property
    def groups(self) -> Mapping[str, int]:
        return query_counts(self.suite)

    @property
    def extent(self) -> Mapping[str, Any]:
        sizes = [len(relation.candidates.words) for relation in self.suite]
        known = "the vocabulary" if self.is_open else spread(sizes)
        return {**super().extent, "candidates": known}

    def new_model(self) -> LanguageModel:
        options = self.options
        return load_model(
            options.model,
            protocol=self.protocol,
            seed=options.seed,
            multi_token=options.multi_token,
            template=options.template,
            connection=options.connection,
            **asdict(options.loading),
        )

    @cached_property
    def settings(self) -> Mapping[str, object]:
        options = self.options
        return {
            "suite": self.suite.name,
            "suite_digest": self.suite.digest,
            "groups": [relation.id for relation in self.suite.relations],
            "vocabulary": None if options.single_token is None else ",".join(options.single_token),
            "limit": options.limit,
            "seed": options.seed,
            "protocol": self.protocol,
            "candidates": options.candidates,
            "keep_scores": options.keep_scores,
            "model": self.model.identity,
            **({"languages": self.languages} if self.languages else {}),
        }

    def describe(self, folder: RunFolder) -> None:
        source = self.source
        if self.whole is not None:
            saved = save_suite(self.whole, folder.path / "suite").resolve()
            source = {**source, "folder": str(saved)}
        folder.describe("suite_source", source)
        if self.options.keep_scores or self.options.single_token is not None:
            words = {relation.id: relation.candidates.words for relation in self.suite.relations}
            folder.describe("words", words)
        folder.note(self.suite.notes)

    def ask(
        self,
        group: str,
        items: Sequence[str] | None = None,
        variants: Sequence[int] | None = None,
        progress: Progress = lambda done: None,
    ) -> pl.DataFrame:
        relation = self.suite.relation(group)
        if items is not None:
            facts = tuple(fact for fact in relation.facts if fact.item in items)
            relation = replace(relation, facts=facts)
        if variants is not None:
            relation = replace(relation, patterns=tuple(relation.patterns[at] for at in variants))
        return ask(
            relation,
            self.model,
            self.suite.name,
            whole_vocabulary=self.is_open,
            keep_scores=self.options.keep_scores,
            progress=progress,
        )

    def rows(self) -> Iterator[base.ExportedRow]:
        return fact_rows(self.suite)

    @classmethod
    def model_of(cls, function: Any, suite: str, template: str | None) -> TextFunction:
        return TextFunction(function, template)

    @classmethod
    def suite_of(
        cls, run: Run, name: str | None, protocol: Protocol | None
    ) -> tuple[Suite, Protocol]:
        settings = run.settings
        if name is None and "suite" not in settings:
            found = "not the folder of a run, which would tell its suite"
            todo = "Name the folder of a run, or of a table of answers the suite: --suite S."
            raise ConsilienceError(found, where=str(run.path), todo=todo)
        suite = cls._whole(run, name or _place(run))
        if settings.get("vocabulary") and (words := run.record.get("words")):
            kept = [
                selection.without_objects(group, {*group.candidates.words} - {*words[group.id]})
                for group in selection.select_relations(suite, [*words]).relations
            ]
            suite = replace(suite, relations=tuple(kept))
        if not run.record:
            with_facts(run.answers, suite)  # a table of somebody: its rows are the suite's
        return suite, protocol or run.protocol or suite.protocol

    @classmethod
    def _whole(cls, run: Run, source: str) -> Suite:
        suite = suites.load_suite(source)
        languages = run.settings.get("languages")
        return selection.select_languages(suite, languages) if languages else suite

    @classmethod
    def is_as_asked(cls, run: Run, suite: Suite) -> bool:
        source = run.record.get("suite_source", {})
        known = {"digest": suite.digest}
        if run.settings.get("vocabulary"):  # ``suite`` is a part
            known = {}
            if Path(folder := source.get("folder", "")).is_dir() and folder:
                known["digest"] = cls._whole(run, folder).digest
        return all(source.get(name, digest) == digest for name, digest in known.items())

    @classmethod
    def read_answers(
        cls, run: Run, options: ScoreOptions, suite: Questions | None
    ) -> base.AnswersElsewhere:
        whole, protocol = cls.suite_of(run, options.suite, options.protocol)
        rule = rule_of(options.match) if options.match else None
        answers = answers_to_facts(run.answers, whole, rule)
        table = prepare(answers, whole)
        return base.AnswersElsewhere(
            whole,
            protocol,
            answers,
            {"answers": str(options.answers), "suite": whole.name, "protocol": protocol},
            before=unknown_answers(table, whole),
            run_settings={
                "suite": whole.name,
                "suite_digest": whole.digest,
                "groups": table["group"].unique(maintain_order=True).to_list(),
                "protocol": protocol,
                **model_of_answers(options, options.match),
            },
            described={"suite_source": _source_of(whole, options.suite or "")},
            recorded=recorded(table).with_columns(suite=pl.lit(whole.name)),
        )

    @classmethod
    def sent(cls, run: Run, suite: Suite) -> pl.DataFrame | None:
        items = run.seeds[0].answers.select("group", "item").unique()
        keys = ("group", "item", "variant", "prompt")
        rows = [{key: row[key] for key in keys} for row in fact_rows(suite)]
        return pl.DataFrame(rows).join(items, on=["group", "item"], how="semi")

    @classmethod
    def shown_texts(cls, run: Run, suite: Suite, items: Set[tuple[str, str]]) -> base.ShownTexts:
        filled = {}
        for relation in suite:
            facts = [fact for fact in relation.facts if (relation.id, fact.item) in items]
            for fact, pattern in product(facts, relation.patterns):
                text = pattern.fill_blank(relation.query(pattern, fact).subject, SHOWN_BLANK)
                filled[relation.id, fact.item, pattern.name] = text
        return filled


def fact_rows(suite: Suite) -> Iterator[base.ExportedRow]:
    """Every fact in every pattern, with a blank in place of the object."""
    for relation in suite.relations:
        candidates = {
            pattern.name: [
                relation.written(word, pattern.language, pattern.object_form)
                for word in relation.candidates.words
            ]
            for pattern in relation.patterns
        }
        for fact, (at, pattern) in product(relation.facts, enumerate(relation.patterns)):
            query = relation.query(pattern, fact)
            yield {
                "suite": suite.name,
                "group": relation.id,
                "item": fact.item,
                "subject": fact.subject,
                "variant": pattern.name,
                "variant_index": at,
                "prompt": pattern.fill_blank(query.subject, BLANK),
                "candidates": candidates[pattern.name],
                "gold": fact.object,
            }


def _source_of(suite: Suite, spec: str, data_dir: Path | None = None) -> dict[str, str]:
    """Where a whole suite is and what it is, for the record of a run: its name may not tell."""
    folder = suites.suite_folder(spec, suites.data_dir(data_dir)).resolve()
    return {"folder": str(folder), "digest": suite.digest}


def _place(run: Run) -> str:
    """Where the suite of a run is: a folder that is there, or a name."""
    folder = str(run.record.get("suite_source", {}).get("folder", ""))
    is_there = folder and Path(folder).is_dir()
    return folder if is_there else str(run.settings["suite"])


def _languages_of(vary: Sequence[str]) -> list[str] | None:
    """The languages of ``--vary language=L,L``; None for all. Another factor of facts raises."""
    values = dict(factor.partition("=")[::2] for factor in vary)
    if others := [name for name in values if name != "language"]:
        raise ConsilienceError(
            f"--vary {others[0]} with a suite of facts",
            expected="--vary language=L,L: facts are asked in all patterns of these languages",
            todo="Leave it out, or ask facts as questions: `consilience probe --as-questions K`.",
        )
    value = values["language"]
    languages = [part.strip() for part in value.split(",") if part.strip()]
    return languages if languages and value != "all" else None
