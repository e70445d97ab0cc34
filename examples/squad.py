"""Question answering before and after consistency training (ParaRel, Section 8.3).

Fine-tunes models on SQuAD v1.1 and asks each of them the original questions and their paraphrases
(Gan and Ng 2019):

    python examples/squad.py bert-base-cased runs/improved/model --out runs/squad \
        --train train-v1.1.json --original dev_orig.json --paraphrased dev_para.json

Exact match and F1 are those of SQuAD's official evaluation (Rajpurkar et al. 2016). Every later
model is compared with the first one.
"""

from __future__ import annotations

import hashlib
import json
import re
import string
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt
import polars as pl
import torch
import typer
from transformers import (
    AutoModelForQuestionAnswering,
    AutoTokenizer,
    DataCollatorWithPadding,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    Trainer,
    TrainingArguments,
    set_seed,
)
from transformers.utils import logging

from consilience import ConsilienceError
from consilience.files.read import parse_json
from consilience.files.write import csv_of, write_whole
from consilience.metrics.statistics import (
    REPLICATES,
    Floats,
    bootstrap_error,
    bootstrap_interval,
    detectable_difference,
    mcnemar,
    paired_permutation,
    resamples,
)
from consilience.models.batches import Budget, equal_length_batches, halving, side_by_side
from consilience.train.batch_trainer import TrainingFolder, check_device, disk_errors

WINDOW = 384
"""Tokens of a window: the question, a part of the context, and the special tokens."""

STRIDE = 128
"""Tokens of the context that two neighbouring windows share."""

LONGEST = 30
"""Tokens of the longest answer."""


@dataclass(frozen=True, slots=True)
class Question:
    """A question on a context, with the answers that people marked."""

    id: str
    question: str
    context: str
    answers: tuple[str, ...]
    starts: tuple[int, ...]
    """The position of each answer in the context, in characters."""
    title: str = ""


@dataclass(frozen=True, slots=True)
class Window:
    """A question with as much of its context as fits."""

    question: int
    """The position of the question in its list."""
    inputs: dict[str, npt.NDArray[np.int64]]
    """What the model reads: arrays (token,) by name."""
    offsets: npt.NDArray[np.int64]
    """First character of each token in the context and the one after its last, (token, 2); -1
    for tokens that are not of the context."""


def read_squad(path: Path) -> list[Question]:
    """The questions of a SQuAD v1.1 file, in its order."""
    try:
        articles = parse_json(path.read_text(encoding="utf-8"))["data"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConsilienceError(
            f"cannot be read ({type(error).__name__})",
            expected='the JSON of SQuAD v1.1, {"data": [...]}',
            where=str(path),
        ) from error
    questions = []
    where = str(path)
    try:
        for a, article in enumerate(articles):
            for p, paragraph in enumerate(article["paragraphs"]):
                for q, row in enumerate(paragraph["qas"]):
                    where = f"{path}: data[{a}].paragraphs[{p}].qas[{q}]"
                    title = str(article.get("title", ""))
                    questions.append(read_question(row, paragraph["context"], title, where))
    except (KeyError, TypeError, AttributeError) as error:
        raise ConsilienceError(
            f"not a question of SQuAD v1.1 ({type(error).__name__}: {error})", where=where
        ) from error
    if not questions:
        raise ConsilienceError("no question", where=str(path))
    id_, count = Counter(question.id for question in questions).most_common(1)[0]
    if count > 1:
        raise ConsilienceError(f"duplicate id '{id_}'", where=str(path))
    return questions


def read_question(row: Mapping[str, Any], context: str, title: str, where: str) -> Question:
    """One question; an answer whose start is wrong by one or two characters is put right."""
    answers = tuple(str(answer["text"]) for answer in row["answers"])
    if not answers:
        raise ConsilienceError("no answer", where=where, todo="SQuAD v2 is not supported.")
    if not isinstance(row["question"], str) or not isinstance(context, str):
        raise ConsilienceError("the question or its context is not a text", where=where)
    starts = []
    for text, answer in zip(answers, row["answers"], strict=True):
        start = answer["answer_start"]
        if not isinstance(start, int):
            raise ConsilienceError(
                f"'answer_start' is {start!r}", expected="a whole number", where=where
            )
        if not context.startswith(text, start):
            start = context.find(text, max(0, start - 2), start + len(text) + 2)
        if start < 0 or not text.strip():
            raise ConsilienceError(f"the answer '{text}' is not at its answer_start", where=where)
        starts.append(start)
    return Question(str(row["id"]), row["question"], context, answers, tuple(starts), title)


def check_pairs(original: Sequence[Question], paraphrased: Sequence[Question]) -> None:
    """Raise unless the two files pair up by order.

    Ids do not pair them: in the released files a paraphrase has the id of its original minus 1,
    which is the id of another original.
    """
    if len(original) != len(paraphrased):
        raise ConsilienceError(
            f"{len(original)} original and {len(paraphrased)} paraphrased questions",
            expected="as many of each, in the same order",
        )
    for row, (one, two) in enumerate(zip(original, paraphrased, strict=True), start=1):
        if (one.context, one.answers) != (two.context, two.answers):
            raise ConsilienceError(
                f"question {row} ('{one.id}' and '{two.id}') has another context or other answers "
                "in the paraphrased file",
                expected="the paraphrases in the order of their originals",
            )


def windows(
    questions: Sequence[Question],
    tokenizer: PreTrainedTokenizerBase,
    length: int = WINDOW,
    stride: int = STRIDE,
) -> Iterator[Window]:
    """The windows of each question, from left to right, without padding."""
    room = length - stride - tokenizer.num_special_tokens_to_add(pair=True)
    for position, question in enumerate(questions):
        text = " ".join(question.question.split())
        tokens = len(tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"])
        if tokens >= room:
            raise ConsilienceError(
                f"the question '{question.id}' has {tokens} tokens, no room for its context",
                expected=f"fewer than {room}",
                todo="Shorten the question, or leave it out.",
            )
        encoded: Any = tokenizer(
            text,
            question.context,
            truncation="only_second",
            max_length=length,
            stride=stride,
            return_overflowing_tokens=True,
            return_offsets_mapping=True,
        )
        names = [name for name in tokenizer.model_input_names if name in encoded]
        for at, spans in enumerate(encoded["offset_mapping"]):
            offsets = np.array(spans, dtype=np.int64)
            offsets[[part != 1 for part in encoded.sequence_ids(at)]] = -1
            inputs = {name: np.array(encoded[name][at], dtype=np.int64) for name in names}
            yield Window(position, inputs, offsets)


def answer_tokens(window: Window, question: Question) -> tuple[int, int]:
    """First and last token of the first answer; (0, 0) where the window lacks a part of it."""
    text = question.answers[0]
    start = question.starts[0] + len(text) - len(text.lstrip())
    end = start + len(text.strip())
    low, high = window.offsets.T
    tokens = np.flatnonzero((low < end) & (high > start))
    if not len(tokens) or low[tokens[0]] > start or high[tokens[-1]] < end:
        return 0, 0
    return int(tokens[0]), int(tokens[-1])


def best_span(
    start: Floats, end: Floats, inside: npt.NDArray[np.bool_], longest: int = LONGEST
) -> tuple[float, int, int]:
    """The largest ``start[i] + end[j]`` of logits (token,), and its i and j: i <= j < i + longest.

    Both tokens are ``inside`` the context (token,). Of equal spans the one that starts first, then
    the one that ends first. The score is -inf where no token is inside.
    """
    places = np.flatnonzero(inside)
    if not len(places):
        return -np.inf, 0, 0
    sums = start[places][:, None] + end[places]
    distance = places - places[:, None]
    sums[(distance < 0) | (distance >= longest)] = -np.inf
    first, last = np.unravel_index(sums.argmax(), sums.shape)
    return float(sums[first, last]), int(places[first]), int(places[last])


def load_model(
    name_or_path: str, *, trained: bool, device: str = "cpu"
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase, str]:
    """A model with a question-answering head, its fast tokenizer, and SHA-256 of its weights.

    ``trained``: whether the head needs weights, too. ``device``: cpu, or auto for CUDA if present.
    """
    check_device(device)
    model: Any
    try:
        tokenizer = AutoTokenizer.from_pretrained(name_or_path, trust_remote_code=False)
        model, info = AutoModelForQuestionAnswering.from_pretrained(
            name_or_path, dtype=torch.float32, output_loading_info=True, trust_remote_code=False
        )
    except (OSError, ValueError) as error:
        raise ConsilienceError(
            f"cannot load '{name_or_path}': {str(error).splitlines()[0]}",
            expected="a Hub id or a folder of a model that transformers can fine-tune on SQuAD",
        ) from error
    if not tokenizer.is_fast:
        raise ConsilienceError(f"'{name_or_path}' has no fast tokenizer")
    absent = sorted(info["missing_keys"])
    prefix = model.base_model_prefix + "."
    lacking = [name for name in absent if trained or name.startswith(prefix)]
    if lacking:
        raise ConsilienceError(
            f"the weights of '{name_or_path}' lack {len(lacking)} tensors, such as '{lacking[0]}'",
            expected="a model fine-tuned on SQuAD" if trained else "a pretrained model",
        )
    if getattr(model.config, "max_position_embeddings", WINDOW) < WINDOW:
        raise ConsilienceError(
            f"'{name_or_path}' takes {model.config.max_position_embeddings} tokens",
            expected=f"{WINDOW} at least",
        )
    digest = hashlib.sha256()
    for name, weight in sorted(model.state_dict().items()):
        if name not in absent:
            digest.update(name.encode() + b"\0" + weight.numpy().tobytes())
    target = "cuda" if device == "auto" and torch.cuda.is_available() else "cpu"
    return model.to(target), tokenizer, digest.hexdigest()


def train_reader(
    name_or_path: str,
    questions: Sequence[Question],
    out: Path,
    *,
    epochs: float = 2,
    learning_rate: float = 3e-5,
    batch_size: int = 16,
    max_steps: int = -1,
    seed: int = 0,
    save_steps: int = 500,
    device: str = "auto",
) -> None:
    """Fine-tune on the first answer of each question, and save the model in ``out``.

    AdamW; the rate rises over the first tenth of the steps and then falls linearly to 0.
    ``max_steps`` overrides ``epochs``. A finished training is left as it is; an interrupted one
    resumes from its last whole checkpoint. The folder of another training is refused.
    """
    set_seed(seed)
    model, tokenizer, weights = load_model(name_or_path, trained=False, device=device)
    settings = {
        "weights": weights,
        "questions": hashlib.sha256(repr([*questions]).encode()).hexdigest(),
        **{
            "epochs": epochs,
            "learning_rate": learning_rate,
            "batch_size": batch_size,
            "seed": seed,
            "max_steps": max_steps,
        },
    }
    folder = TrainingFolder(out, settings)
    if folder.is_finished():
        return
    features: Any = [
        {**window.inputs, "start_positions": start, "end_positions": end}
        for window in windows(questions, tokenizer)
        for start, end in [answer_tokens(window, questions[window.question])]
    ]
    trainer = Trainer(
        model=model,
        args=TrainingArguments(
            output_dir=str(out),
            num_train_epochs=epochs,
            max_steps=max_steps,
            learning_rate=learning_rate,
            per_device_train_batch_size=batch_size,
            seed=seed,
            warmup_steps=0.1,
            save_steps=save_steps,
            save_total_limit=1,
            use_cpu=device == "cpu",
            logging_strategy="no",
            report_to="none",
        ),
        train_dataset=features,
        data_collator=DataCollatorWithPadding(tokenizer),
        processing_class=tokenizer,
    )
    with disk_errors(out):
        trainer.train(resume_from_checkpoint=folder.last_checkpoint())
        model.save_pretrained(out)
        tokenizer.save_pretrained(out)
        folder.finish()


def predict(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    questions: Sequence[Question],
    *,
    length: int = WINDOW,
    stride: int = STRIDE,
    longest: int = LONGEST,
) -> list[str]:
    """The text of each question's best span over its windows, by the sum of its two logits.

    Of equal spans the one in the first window. Batches hold windows of one length.
    """
    model.eval()
    read = list(windows(questions, tokenizer, length, stride))
    budget = Budget.of(model)

    @torch.inference_mode()
    def logits_of(places: npt.NDArray[np.int64]) -> Floats:
        """Start and end logits, (2, window, token)."""
        inputs = {
            name: torch.tensor(np.stack([read[at].inputs[name] for at in places]))
            for name in read[places[0]].inputs
        }
        output = model(**{name: tensor.to(model.device) for name, tensor in inputs.items()})
        logits = torch.stack([output.start_logits, output.end_logits])
        return logits.double().cpu().numpy()

    def work(places: npt.NDArray[np.int64]) -> Floats:
        length_of_batch = len(read[places[0]].offsets)
        return np.concatenate(halving(logits_of, places, length_of_batch, budget), axis=1)

    best: dict[int, tuple[float, int, str]] = {}
    batches = equal_length_batches([len(window.offsets) for window in read], budget)
    for places, logits in side_by_side(work, batches, model.device):
        for at, start, end in zip(places.tolist(), *logits, strict=True):
            question, offsets = read[at].question, read[at].offsets
            score, first, last = best_span(start, end, offsets[:, 0] >= 0, longest)
            if score > -np.inf and (question not in best or (-score, at) < best[question][:2]):
                text = questions[question].context[offsets[first, 0] : offsets[last, 1]]
                best[question] = (-score, at, text)
    return [best[at][2] if at in best else "" for at in range(len(questions))]


def normalize_answer(text: str) -> str:
    """Lower case, without punctuation, a, an, the, and repeated spaces (official evaluation)."""
    words = "".join(letter for letter in text.lower() if letter not in string.punctuation)
    return " ".join(re.sub(r"\b(a|an|the)\b", " ", words).split())


def exact_match(answer: str, truths: Sequence[str]) -> bool:
    """Whether the normalised answer equals any of the true ones."""
    return any(normalize_answer(answer) == normalize_answer(truth) for truth in truths)


def f1_score(answer: str, truths: Sequence[str]) -> float:
    """F1 of the normalised words that answer and truth share: the highest over the true ones."""
    words = normalize_answer(answer).split()

    def against(truth: str) -> float:
        true = normalize_answer(truth).split()
        shared = sum((Counter(words) & Counter(true)).values())
        return 2 * shared / (len(words) + len(true)) if shared else 0.0

    return max(against(truth) for truth in truths)


MEASURES = (
    *(("exact_match", of) for of in ("original", "paraphrased", "difference")),
    *(("f1", of) for of in ("original", "paraphrased", "difference")),
    ("consistency", "pair"),
    ("overlap", "pair"),
    ("consistent_accuracy", "pair"),
)
"""Metrics, and which questions each is of; ``difference`` is paraphrased minus original."""

COLUMNS = [f"{metric}_{of}" for metric, of in MEASURES]
"""The columns of ``outcomes`` with these metrics."""


def outcomes(
    original: Sequence[Question],
    paraphrased: Sequence[Question],
    answers: tuple[Sequence[str], Sequence[str]],
) -> pl.DataFrame:
    """One row a pair of questions: the two answers and every metric of ``COLUMNS``.

    consistency: the normalised answers are equal. overlap: F1 of one answer against the other.
    consistent_accuracy: both answers match exactly. ``cluster`` is the article where every question
    has a title and titles are fewer than contexts, else the context.
    """
    check_pairs(original, paraphrased)
    titles = {question.title for question in original}
    contexts = {question.context for question in original}
    by = "title" if "" not in titles and len(titles) < len(contexts) else "context"
    clusters = {getattr(question, by): number for number, question in enumerate(original)}
    rows = []
    for one, two, first, second in zip(original, paraphrased, *answers, strict=True):
        same = exact_match(first, [second])
        # Two empty answers agree, although they share no word.
        overlap = max(float(same), f1_score(first, [second]))
        scores = {"consistency_pair": float(same), "overlap_pair": overlap}
        for name, metric in (("exact_match", exact_match), ("f1", f1_score)):
            before, after = float(metric(first, one.answers)), float(metric(second, two.answers))
            scores[f"{name}_original"], scores[f"{name}_paraphrased"] = before, after
            scores[f"{name}_difference"] = after - before
        right = scores["exact_match_original"] and scores["exact_match_paraphrased"]
        scores["consistent_accuracy_pair"] = float(right)
        about = {"id": one.id, "paraphrase_id": two.id, "cluster": clusters[getattr(one, by)]}
        about |= {"question": one.question, "paraphrase": two.question}
        rows.append({**about, "answer": first, "paraphrase_answer": second, **scores})
    return pl.DataFrame(rows)


def evaluate(pairs_table: pl.DataFrame, seed: int = 0) -> pl.DataFrame:
    """Means over pairs with 95 % intervals over clusters: one row for each of ``MEASURES``."""
    sums, sizes = cluster_sums(pairs_table)
    replicates = bootstrap_means(sums, sizes, seed)
    rows = []
    for at, (metric, of) in enumerate(MEASURES):
        value = float(sums[:, at].sum() / sizes.sum())
        bounds = (-1.0, 1.0) if of == "difference" else (0.0, 1.0)
        low, high = bootstrap_interval(
            value, replicates[:, at], len(sizes), bounds, proportion=of != "difference"
        )
        row = {"metric": metric, "of": of, "value": value, "low": low, "high": high}
        rows.append(row | {"n": pairs_table.height, "clusters": len(sizes)})
    return pl.DataFrame(rows)


def compare(before: pl.DataFrame, after: pl.DataFrame, seed: int = 0) -> pl.DataFrame:
    """After minus before on the same pairs, with 95 % intervals over clusters, and p.

    Metrics that are 0 or 1 for each pair: exact McNemar test over pairs, which takes the pairs for
    independent. All others (F1, overlap, differences): paired permutation test of clusters.
    """
    keys = ["id", "paraphrase_id", "cluster"]
    if not before.select(keys).equals(after.select(keys)):
        raise ConsilienceError("the two models were asked different questions")
    was, now = evaluate(before, seed), evaluate(after, seed)
    moved = after.select(*keys, *(pl.col(name) - before[name] for name in COLUMNS))
    sums, sizes = cluster_sums(moved)
    replicates = bootstrap_means(sums, sizes, seed)
    rows = []
    for at, (metric, of) in enumerate(MEASURES):
        value = float(sums[:, at].sum() / sizes.sum())
        bounds = (-2.0, 2.0) if of == "difference" else (-1.0, 1.0)
        low, high = bootstrap_interval(value, replicates[:, at], len(sizes), bounds)
        if metric not in ("f1", "overlap") and of != "difference":
            change = moved[COLUMNS[at]]
            p = mcnemar(int((change < 0).sum()), int((change > 0).sum()))
            test = "mcnemar"
        else:
            p = paired_permutation(sums[:, at].tolist(), seed)
            test = "permutation"
        row = {"metric": metric, "of": of, "difference": value, "low": low, "high": high}
        row |= {"before": was["value"][at], "after": now["value"][at], "p": p, "test": test}
        error = bootstrap_error(replicates[:, at], len(sizes))
        detectable = detectable_difference(error, len(sizes))
        rows.append(row | {"detectable": detectable, "n": moved.height})
    return pl.DataFrame(rows)


def cluster_sums(pairs_table: pl.DataFrame) -> tuple[Floats, Floats]:
    """Sums (cluster, measure), and the number of pairs (cluster,)."""
    table = pairs_table.group_by("cluster", maintain_order=True).agg(
        pl.len().alias("size"), pl.col(COLUMNS).sum()
    )
    return table.select(COLUMNS).to_numpy(), table["size"].to_numpy().astype(np.float64)


def bootstrap_means(sums: Floats, sizes: Floats, seed: int) -> Floats:
    """Bootstrap means (replicate, measure)."""
    drawn = resamples(len(sizes), REPLICATES, np.random.default_rng(seed)).astype(np.float64)
    means: Floats = (drawn @ sums) / (drawn @ sizes)[:, None]
    return means


def answered(
    models: Sequence[str],
    training: Sequence[Question],
    pairs: tuple[Sequence[Question], Sequence[Question]],
    out: Path,
    device: str,
    **training_options: Any,
) -> dict[str, pl.DataFrame]:
    """The outcomes of each model, fine-tuned in a folder of ``out`` (``train_reader``)."""
    original, paraphrased = pairs
    by_model: dict[str, pl.DataFrame] = {}
    for number, name_or_path in enumerate(models, start=1):
        folder = out / f"model-{number}"
        train_reader(name_or_path, training, folder, device=device, **training_options)
        model, tokenizer, _ = load_model(str(folder), trained=True, device=device)
        texts = predict(model, tokenizer, [*original, *paraphrased])
        answers = texts[: len(original)], texts[len(original) :]
        by_model[name_or_path] = outcomes(original, paraphrased, answers)
    return by_model


def tables_of(by_model: Mapping[str, pl.DataFrame], seed: int) -> dict[str, pl.DataFrame]:
    """The tables ``answers``, ``metrics`` and ``comparison``; their first column is the model."""
    first, *later = by_model
    parts = {
        "answers": dict(by_model),
        "metrics": {name: evaluate(table, seed) for name, table in by_model.items()},
        "comparison": {name: compare(by_model[first], by_model[name], seed) for name in later},
    }
    return {
        name: pl.concat(
            [table.select(pl.lit(model).alias("model"), pl.all()) for model, table in part.items()]
        )
        for name, part in parts.items()
        if part
    }


File = Annotated[Path, typer.Option(help="SQuAD v1.1 JSON.")]


def squad(
    models: Annotated[
        list[str], typer.Argument(help="Hub ids or folders; the first one is the reference.")
    ],
    train: File,
    original: File,
    paraphrased: Annotated[
        Path, typer.Option(help="The same questions in other words, in the order of --original.")
    ],
    out: Annotated[Path, typer.Option(help="Folder for fine-tuned models and tables.")],
    epochs: Annotated[float, typer.Option(min=0)] = 2,
    learning_rate: Annotated[float, typer.Option(help="The highest learning rate.")] = 3e-5,
    batch_size: Annotated[int, typer.Option(help="Windows in a batch.", min=1)] = 16,
    max_steps: Annotated[int, typer.Option(help="Overrides --epochs unless it is -1.")] = -1,
    limit: Annotated[int | None, typer.Option(help="Ask only the first pairs.", min=1)] = None,
    seed: Annotated[int, typer.Option(help="Seed of fine-tuning and intervals.")] = 0,
    device: Annotated[str, typer.Option(help="auto or cpu.")] = "auto",
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Fine-tune models on SQuAD, ask original and paraphrased questions, and compare the models.

    Writes answers.csv, metrics.csv and comparison.csv. Run the same command again to resume it;
    finished models in --out are used again.
    """
    logging.set_verbosity_error()
    training = read_squad(train)
    pairs = read_squad(original), read_squad(paraphrased)
    check_pairs(*pairs)
    chosen = pairs[0][:limit], pairs[1][:limit]
    contexts = {question.context for question in training}
    seen = sum(question.context in contexts for question in chosen[0])
    notes = [f"{seen} of {len(chosen[0])} questions are on contexts of --train"] if seen else []
    options = {
        "epochs": epochs,
        "learning_rate": learning_rate,
        "batch_size": batch_size,
        "max_steps": max_steps,
        "seed": seed,
    }
    tables = tables_of(answered(models, training, chosen, out, device, **options), seed)
    for name, table in tables.items():
        write_whole(out / f"{name}.csv", csv_of(table))
    if as_json:
        rows = {
            name: table.with_columns(pl.col(pl.Float64).fill_nan(None)).to_dicts()
            for name, table in tables.items()
            if name != "answers"
        }
        typer.echo(json.dumps({"models": models, "warnings": notes, "comparison": [], **rows}))
        return
    for note in notes:
        typer.echo(f"note: {note}", err=True)
    with pl.Config(tbl_rows=-1, tbl_cols=-1, tbl_width_chars=160, float_precision=3):
        for name in ("metrics", "comparison"):
            if name in tables:
                typer.echo(tables[name])


if __name__ == "__main__":
    try:
        typer.run(squad)
    except ConsilienceError as error:
        typer.echo(f"error: {error}", err=True)
        if "--json" in sys.argv:
            typer.echo(json.dumps({"error": {**error.to_dict(), "is_usage": False}}))
        sys.exit(2)
