"""Sentence pairs, answers to them and tiny classifiers, built where tests need them."""

import json
from dataclasses import replace
from functools import partial

import numpy as np
import polars as pl

from conftest import SENTENCES, _tokenizer, with_segments
from consilience import measure
from consilience.analysis.examples import changed_answers
from consilience.core.factors import Design
from consilience.core.items import TextPair
from consilience.core.schemas import ANSWERS_SCHEMA, METRICS_SCHEMA
from consilience.metrics.differences import compare
from consilience.models.tokens import log_softmax
from consilience.plans.pairs import present_pairs
from consilience.runs.run import Run
from consilience.suites.pairs import TASKS, chosen, original
from consilience.suites.pairs import forms_of as forms_of_pair
from consilience.types import PAIR_WORDS, Candidates, Relation, Suite

FORMS = ("original", "reverse", "signal")
MRPC = TASKS["mrpc"]
SAME = MRPC.labels
PAIRS = [
    TextPair(str(at), first, second, SAME[at % 2])
    for at, (first, second) in enumerate(zip(SENTENCES, SENTENCES[1:] + SENTENCES[:1], strict=True))
]
ODD = [
    TextPair("a", "[SEP] Rome", "</s> [CLS]Oslo[PAD]", SAME[0]),
    TextPair("b", "<|endoftext|> Rome <|endoftext|>", "", SAME[0]),
    TextPair("c", "[MASK]", "<s>Rome</s>", SAME[0]),
    TextPair("d", "", "", SAME[0]),
]
"""Pairs with special tokens in their text, and an empty one."""


def suite_of(*runs, labels=("no", "yes"), positive=""):
    """A suite of the groups and forms that the answers tables have."""
    forms = runs[0].select("variant", "variant_index").unique().sort("variant_index")["variant"]
    writes_freely = any("x" in run["answer"] for run in runs)
    design = Design.of_forms(forms.to_list(), labels, positive)
    design = replace(design, writes_freely=writes_freely)
    groups = {group for run in runs for group in run["group"].unique()}
    relations = [
        Relation(group, group, "N-1", (), (), {}, Candidates(labels, (0,) * len(labels)), design)
        for group in sorted(groups)
    ]
    return Suite("calum", tuple(relations), "strict", words=PAIR_WORDS)


def measured(run, labels=("no", "yes"), *, positive=""):
    return measure(run, suite_of(run, labels=labels, positive=positive), "strict")


def compared(first, second, labels=("no", "yes")):
    suite = suite_of(first, second, labels=labels)
    return compare({"first": first, "second": second}, suite, "strict")


def table(rows, forms=FORMS, group="t"):
    """An answers table of (item, gold, answers in the order of the forms[, first sentence])."""
    records = [
        {
            "suite": "calum", "group": group, "item": item,
            "subject": subject[0] if subject else f"s{item}",
            "variant": form, "variant_index": at, "gold": gold, "answer": answer,
            "excluded": "too long" if answer is None else None,
        }
        for item, gold, answers, *subject in rows
        for at, (form, answer) in enumerate(zip(forms, answers, strict=True))
    ]  # fmt: skip
    return pl.DataFrame(records, schema=ANSWERS_SCHEMA)


def numbered(golds, *forms):
    """One item a letter: y and n are labels, x is no label, ? is no answer, - was not asked."""
    words = {"y": "yes", "n": "no", "x": "x", "?": "", "-": None}
    rows = zip(golds, *forms, strict=True)
    return [
        (str(at), words[gold], [words[letter] for letter in letters])
        for at, (gold, *letters) in enumerate(rows)
    ]


def answers_of(golds, *forms):
    """The answers table of ``numbered`` in the first forms."""
    return table(numbered(golds, *forms), FORMS[: len(forms)])


def row_of(metrics, metric, form="all"):
    """The row of a task: of the original form, or of another one."""
    part = {"kind": "whole"} if form == "all" else {"kind": "form", "level": form}
    (row,) = metrics.filter(metric=metric, over="group", **part).to_dicts()
    return row


def shuffled(rows, seed=3):
    return rows.sample(fraction=1, shuffle=True, seed=seed)


def comparable(metrics):
    """Rows in one order that are equal if their numbers are, also where there is no number."""
    return metrics.sort("metric", "kind", "level").fill_nan(None).to_dicts()


def forms_of(pairs=PAIRS, names=("reverse", "signal"), task=MRPC, first=None):
    """The original and perturbed forms of all pairs in one list."""
    first = first or partial(original, indicators=task.indicators)
    return [
        form for pair in pairs for form in forms_of_pair(pair, first(pair), chosen(names)).values()
    ]


def present(pairs, perturbations, model):
    """MRPC's pairs as a model is asked them; ``perturbations``: names, or values by name."""
    if not isinstance(perturbations, dict):
        perturbations = chosen(perturbations)
    first = partial(original, indicators=MRPC.indicators)
    return present_pairs(MRPC, pairs, first, perturbations, model)


def shown(group):
    """The forms of each pair of a group."""
    size = len(group.variants)
    forms = [one.shown for one in group.asks]
    return [tuple(forms[at : at + size]) for at in range(0, len(forms), size)]


def by_row(scored, size):
    """Log-probabilities (row, answer) of what a model gave in its order; each row once."""
    rows = {}
    for scores in scored:
        known = log_softmax(scores.totals) if scores.logprob is None else scores.logprob
        assert not rows.keys() & {*scores.rows.tolist()}
        rows |= dict(zip(scores.rows.tolist(), known, strict=True))
    logprob = np.array([rows[row] for row in range(size)])
    assert not np.isnan(logprob).any()
    return logprob


def write_pairs(path, **changes):
    """A JSONL file of the pairs, labels as numbers; a column that is None is left out."""
    lines = []
    for at, pair in enumerate(PAIRS):
        row = {"idx": at, "sentence1": pair.first, "sentence2": pair.second, "label": at % 2}
        row = {name: value for name, value in (row | changes).items() if value is not None}
        lines.append(json.dumps(row) + "\n")
    path.write_text("".join(lines), encoding="utf-8")
    return path


def metrics_of(folder):
    table = pl.read_csv(folder / "metrics.csv", schema_overrides=METRICS_SCHEMA, glob=False)
    return table.with_columns(pl.col(pl.String).fill_null(""))


def changed_in(folder):
    run = Run.open(folder)
    return changed_answers(run.queries, run.answers, run.suite).to_dicts()


def stamps(folder):
    """When each file with answers was written, and as which file."""
    stats = {path: path.stat() for path in folder.rglob("answers/*.parquet")}
    assert stats
    return {path: (stat.st_mtime_ns, stat.st_ino) for path, stat in stats.items()}


def save_classifier(folder, family="bert", labels=SAME, *, seed=0, named=True):
    """A small random classifier; its labels have names in its configuration if ``named``."""
    import torch
    import transformers

    tokenizer = with_segments(_tokenizer("wordpiece")) if family == "bert" else _tokenizer("causal")
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
    name = {"bert": "Bert", "llama": "Llama", "gpt2": "GPT2"}[family]
    config = getattr(transformers, f"{name}Config")(
        vocab_size=len(tokenizer), initializer_range=0.6, intermediate_size=64,
        max_position_embeddings=128, pad_token_id=tokenizer.pad_token_id,
        bos_token_id=tokenizer.bos_token_id, eos_token_id=tokenizer.eos_token_id, **sizes,
        **({"id2label": dict(enumerate(labels))} if named else {"num_labels": len(labels)}),
    )  # fmt: skip
    torch.manual_seed(seed)
    model = getattr(transformers, f"{name}ForSequenceClassification")(config)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder
