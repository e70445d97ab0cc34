"""Labels of sentence pairs by a causal model: chosen and written, ours and the plain way."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import questions
import torch
from transformers import GenerationConfig

from consilience.core.errors import Loading
from consilience.core.items import Form, TextPair
from consilience.models.fast.products import CPU_TOKENS, speed_up
from consilience.models.loading import load_pretrained
from consilience.models.prompt_tokens import LONGEST_LABEL
from consilience.models.prompted import LabelWriter, Manner
from consilience.suites.pairs import TASKS, chosen, forms_of, original, read_pairs

TASK = TASKS["mrpc"]
MODEL = "packaged:smollm2"
ITEMS = 10

BATCHES = "transformers, prompts of one length in a batch"


def forms() -> list[Form]:
    """Some items of MRPC in every form; where it is not there, facts of the bundled suite."""
    path = questions.shared() / "data" / "glue" / "mrpc" / "validation.tsv"
    if path.is_file():
        pairs: Sequence[TextPair] = read_pairs(str(path), TASK).items[:ITEMS]
    else:
        relation = questions.suite().relations[0]
        first, second = relation.patterns[:2]
        texts = [
            (each.fill(fact.subject, fact.object) for each in (first, second))
            for fact in relation.facts[:ITEMS]
        ]
        pairs = [TextPair(str(at), *text, "equivalent") for at, text in enumerate(texts)]
    formats = chosen(["all"])
    return [
        form
        for pair in pairs
        for form in forms_of(pair, original(pair, TASK.indicators), formats).values()
    ]


def loaded():
    """The model as it is loaded for a run."""
    return load_pretrained(MODEL, Loading(device="cpu"))


Answers = list[tuple[str, str]]
"""The chosen label and the written text of each form."""


def ours(writer: LabelWriter, asked: Sequence[Form]) -> Callable[[], Answers]:
    """Consilience."""

    def ask() -> Answers:
        writer.read_before.clear()
        texts, labels = {}, {}
        for places, written in writer.write(asked):
            texts |= dict(zip(places.tolist(), written, strict=True))
        for scores in writer.score(asked):
            best = scores.totals.argmax(axis=1)
            labels |= {row: writer.labels[at] for row, at in zip(scores.rows, best, strict=True)}
        return [(labels[at], texts[at]) for at in range(len(asked))]

    return ask


def plain(writer: LabelWriter, asked: Sequence[Form], tokens: int) -> Callable[[], Answers]:
    """The model as transformers runs it: a label a call, then ``generate``.

    ``tokens``: of the prompts in a batch, which have one length. Linear layers are packed as ours.
    """
    own = loaded()
    model = own.model.eval()
    speed_up(model, head=True)
    config = GenerationConfig(
        max_new_tokens=LONGEST_LABEL, do_sample=False, eos_token_id=writer.ends, pad_token_id=0
    )
    prompts = [each["input_ids"] for each in writer.encode(asked)]
    by_length: dict[int, list[int]] = {}
    for at, ids in enumerate(prompts):
        by_length.setdefault(len(ids), []).append(at)
    batches = [
        rows[start : start + max(1, tokens // length)]
        for length, rows in by_length.items()
        for start in range(0, len(rows), max(1, tokens // length))
    ]

    @torch.inference_mode()
    def ask() -> Answers:
        answers: Answers = [("", "")] * len(prompts)
        for rows in batches:
            ids = torch.tensor([prompts[at] for at in rows])
            totals = []
            for target in writer.targets:
                whole = torch.cat([ids, torch.tensor([target[:-1]] * len(ids))], dim=1)
                logits = model(input_ids=whole, use_cache=False).logits[:, ids.shape[1] - 1 :]
                steps = logits.log_softmax(-1)
                totals.append(sum(steps[:, at, token] for at, token in enumerate(target)))
            best = torch.stack(totals, dim=1).argmax(dim=1).tolist()
            found = model.generate(
                ids, attention_mask=torch.ones_like(ids), generation_config=config
            )
            for row, label, text in zip(rows, best, found[:, ids.shape[1] :].tolist(), strict=True):
                answers[row] = (writer.labels[label], writer._decoded(text, Manner()))
        return answers

    return ask


def contenders() -> tuple[dict[str, Callable[[], Answers]], int, int, LabelWriter]:
    """Who answers; how many forms; how many tokens they have; the model."""
    asked = forms()
    writer = LabelWriter(loaded(), TASK, None)
    tokens = sum(len(each["input_ids"]) for each in writer.encode(asked))
    runs = {
        "consilience": ours(writer, asked),
        BATCHES: plain(writer, asked, CPU_TOKENS),
    }
    return runs, len(asked), tokens, writer
