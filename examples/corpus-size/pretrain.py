"""Train a family of small masked language models on more and more text (ParaRel, Table 4).

Every model has the same architecture, vocabulary, masked words to predict and number of updates.
Only the amount of different text varies:

    python examples/corpus-size/pretrain.py leads.jsonl --out models

``leads.jsonl`` has one JSON object with a ``text`` for each article. Writes
``models/share-SHARE/seed-SEED/`` with two folders that ``from_pretrained`` reads, ``best`` (lowest
held-out loss) and ``final``, and the record ``training.json``. Rerun the same command to resume.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import re
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt
import torch
import typer
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
from tokenizers.trainers import WordPieceTrainer
from torch.nn.functional import cross_entropy
from transformers import PreTrainedTokenizerFast, RoFormerConfig, RoFormerForMaskedLM
from transformers.utils import logging

from consilience import ConsilienceError
from consilience.files.read import parse_json
from consilience.files.write import write_whole

SPECIAL = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]"} | {
    "sep_token": "[SEP]",
    "mask_token": "[MASK]",
}
"""The special tokens, by their names in transformers. Their ids are 0 to 4 in this order."""

PAD, UNKNOWN, CLS, SEP, MASK = range(5)

Tokens = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Recipe:
    """Everything that decides a training except the articles, the share and the seed."""

    updates: int
    """Optimizer steps, the same for every share."""
    tokens: int
    """About how many tokens an update reads, padding included."""
    layers: int
    """Transformer layers."""
    width: int
    """Hidden size; each attention head has 64 of it."""
    vocabulary: int
    """Entries of the WordPiece vocabulary."""
    peak: float
    """The highest learning rate: reached after a tenth of the updates, then falling to 0."""
    longest: int = 64
    """Tokens of the longest window, [CLS] and [SEP] included."""
    masked: float = 0.15
    """Share of tokens to predict; of these 80 % become [MASK], 10 % a random token (BERT)."""
    held_out: float = 0.02
    """Share of articles that no model is trained on."""
    evaluations: int = 40
    """How often the held-out loss is measured."""


def read_texts(path: Path) -> list[str]:
    """The ``text`` of each line of a JSONL file."""
    texts = []
    try:
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
            row = parse_json(line)
            if not isinstance(row, dict) or not isinstance(row.get("text"), str):
                raise ConsilienceError(
                    "no text", expected='{"text": "..."}', where=f"{path}:{number}"
                )
            texts.append(row["text"])
    except (OSError, ValueError) as error:
        raise ConsilienceError(
            f"cannot be read ({type(error).__name__})",
            expected='a JSONL file with {"text": "..."} in each line',
            where=str(path),
        ) from error
    if len(texts) < 10:
        raise ConsilienceError(f"{len(texts)} articles", expected="at least 10", where=str(path))
    return texts


def load_tokenizer(folder: Path, texts: Sequence[str], vocabulary: int) -> PreTrainedTokenizerFast:
    """The cased WordPiece tokenizer in ``folder``, trained on ``texts`` if it is not there."""
    if not (folder / "tokenizer.json").exists():
        trained = Tokenizer(models.WordPiece(unk_token="[UNK]"))
        trained.normalizer = normalizers.BertNormalizer(lowercase=False)
        trained.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        trained.decoder = decoders.WordPiece()
        names = list(SPECIAL.values())
        trainer = WordPieceTrainer(vocab_size=vocabulary, special_tokens=names, show_progress=False)
        trained.train_from_iterator(texts, trainer)
        trained.post_processor = processors.BertProcessing(("[SEP]", SEP), ("[CLS]", CLS))
        PreTrainedTokenizerFast(tokenizer_object=trained, **SPECIAL).save_pretrained(folder)
    return PreTrainedTokenizerFast.from_pretrained(folder)


def sentences_of(text: str) -> list[str]:
    """Sentences: a full stop and a space end one if a capital letter follows."""
    return [part for part in re.split(r"(?<=[.!?])\s+(?=[A-Z\"'(])", text.strip()) if part]


def encode(tokenizer: PreTrainedTokenizerFast, texts: Sequence[str]) -> list[list[list[int]]]:
    """The token ids of each sentence of each article."""
    articles = [sentences_of(text) for text in texts]
    encode_batch = tokenizer.backend_tokenizer.encode_batch
    flat = iter(encode_batch(list(itertools.chain(*articles)), add_special_tokens=False))
    return [[next(flat).ids for _ in sentences] for sentences in articles]


def split_articles(count: int, held_out: float, share: float, seed: int) -> tuple[Tokens, Tokens]:
    """Positions of the articles to train on and of those held out.

    The articles held out are the same for every share and seed. The rest is shuffled by ``seed``
    and a share is its beginning, so that each share contains all smaller ones of that seed.
    """
    order = np.random.default_rng(0).permutation(count)
    aside, rest = np.split(order, [math.ceil(held_out * count)])
    np.random.default_rng(seed).shuffle(rest)
    return rest[: math.ceil(share * len(rest))], aside


def window(article: Sequence[Sequence[int]], start: int, length: int) -> list[int]:
    """As many whole sentences from ``start`` as ``length`` tokens hold; a long one is truncated."""
    room = length - 2
    ids = list(article[start][:room])
    for sentence in article[start + 1 :]:
        if len(ids) + len(sentence) > room:
            break
        ids += sentence
    return [CLS, *ids, SEP]


def mask(
    windows: Sequence[Sequence[int]], recipe: Recipe, size: int, generator: np.random.Generator
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Input ids (window, token), flat positions of the tokens to predict, and these tokens.

    ``size``: entries of the vocabulary. At least one token is predicted.
    """
    ids = np.full((len(windows), max(map(len, windows))), PAD, dtype=np.int64)
    for row, tokens in zip(ids, windows, strict=True):
        row[: len(tokens)] = tokens
    flat = ids.reshape(-1)
    words = np.flatnonzero(flat > MASK)
    chosen = np.sort(generator.permutation(words)[: max(1, round(recipe.masked * len(words)))])
    gold = flat[chosen].copy()
    draw = generator.random(len(chosen))
    flat[chosen[draw < 0.8]] = MASK
    at_random = chosen[draw >= 0.9]
    flat[at_random] = generator.integers(MASK + 1, size, len(at_random))
    return torch.from_numpy(ids), torch.from_numpy(chosen), torch.from_numpy(gold)


class Corpus:
    """The articles of one share, as token ids of sentences."""

    def __init__(self, articles: Sequence[Sequence[Sequence[int]]]) -> None:
        self.articles = articles
        self.starts = [(a, s) for a, article in enumerate(articles) for s in range(len(article))]
        self.tokens = sum(len(sentence) for article in articles for sentence in article)

    def batch(self, recipe: Recipe, generator: np.random.Generator) -> list[list[int]]:
        """Windows of ``recipe.tokens`` tokens together, at random sentences, of one random length.

        Patterns of suites are single short sentences, so short windows are frequent.
        """
        length = int(generator.integers(recipe.longest // 4, recipe.longest + 1))
        rows = generator.integers(0, len(self.starts), recipe.tokens // length)
        return [
            window(self.articles[article], sentence, length)
            for article, sentence in map(self.starts.__getitem__, rows.tolist())
        ]

    def log_frequencies(self, size: int) -> torch.Tensor:
        """Log of the share of each token, plus one (token,): where the output bias starts."""
        tokens = list(itertools.chain.from_iterable(itertools.chain(*self.articles)))
        counts = np.bincount(tokens, minlength=size) + 1.0
        return torch.from_numpy(np.log(counts / counts.sum()))

    def windows(self, recipe: Recipe) -> Iterator[list[int]]:
        """The first window of each article."""
        return (window(article, 0, recipe.longest) for article in self.articles)


def loss_of(model: Any, inputs: tuple[torch.Tensor, torch.Tensor, torch.Tensor]) -> torch.Tensor:
    """Mean cross-entropy in nats; the head is computed where a token is predicted only."""
    ids, chosen, gold = inputs
    with torch.autocast("cpu", torch.bfloat16):
        hidden = model.roformer(input_ids=ids, attention_mask=(ids != PAD).long())[0]
        logits = model.cls(hidden.flatten(0, 1)[chosen])
    return cross_entropy(logits.float(), gold)


class Training:
    """One model: everything that an interrupted training needs is in ``folder``."""

    def __init__(
        self,
        folder: Path,
        recipe: Recipe,
        settings: Mapping[str, Any],
        tokenizer: PreTrainedTokenizerFast,
        articles: Sequence[Sequence[Sequence[int]]],
    ) -> None:
        self.folder, self.recipe, self.tokenizer = folder, recipe, tokenizer
        self.settings = asdict(recipe) | dict(settings)
        self.seed, self.size = int(settings["seed"]), len(tokenizer)
        chosen, aside = split_articles(len(articles), recipe.held_out, settings["share"], self.seed)
        self.corpus = Corpus([articles[at] for at in chosen])
        held_out = list(Corpus([articles[at] for at in aside]).windows(recipe))
        self.held_out = mask(held_out, recipe, self.size, np.random.default_rng(0))
        torch.manual_seed(self.seed)
        self.model: Any = RoFormerForMaskedLM(self._config())
        self.model.cls.predictions.bias.data.copy_(self.corpus.log_frequencies(self.size))
        self.optimizer = torch.optim.AdamW(
            self.model.parameters(), recipe.peak, (0.9, 0.98), weight_decay=0.01, fused=True
        )
        self.update, self.seconds, self.history = 0, 0.0, list[dict[str, float]]()

    def _config(self) -> RoFormerConfig:
        """BERT with rotary positions, which learn from context after far fewer updates."""
        width = self.recipe.width
        return RoFormerConfig(
            vocab_size=self.size,
            embedding_size=width,
            hidden_size=width,
            num_hidden_layers=self.recipe.layers,
            num_attention_heads=max(1, width // 64),
            intermediate_size=4 * width,
            max_position_embeddings=self.recipe.longest,
            type_vocab_size=1,
            hidden_dropout_prob=0.0,
            attention_probs_dropout_prob=0.0,
            pad_token_id=PAD,
        )

    def run(self, every: float = 60.0) -> None:
        """Train to the end; ``every``: seconds between two checkpoints."""
        if self._finished():
            return
        self._resume()
        saved, started = time.monotonic(), time.process_time()
        step = max(1, self.recipe.updates // self.recipe.evaluations)
        while self.update < self.recipe.updates:
            loss = self._one_update()
            if self.update % step == 0 or self.update == self.recipe.updates:
                self._evaluate(loss)
            if time.monotonic() - saved > every:
                self.seconds += time.process_time() - started
                self._save_state()
                saved, started = time.monotonic(), time.process_time()
        self.seconds += time.process_time() - started
        self._finish()

    def _one_update(self) -> float:
        """The batch depends on the seed and the update alone, so a resumed training repeats it."""
        generator = np.random.default_rng([self.seed, self.update])
        warm = self.recipe.updates / 10
        left = (self.recipe.updates - self.update) / (self.recipe.updates - warm)
        for group in self.optimizer.param_groups:
            group["lr"] = self.recipe.peak * min((self.update + 1) / warm, left)
        windows = self.corpus.batch(self.recipe, generator)
        loss = loss_of(self.model, mask(windows, self.recipe, self.size, generator))
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.update += 1
        return float(loss.detach())

    def _evaluate(self, loss: float) -> None:
        """Measure the held-out loss, and keep the model if it is the lowest."""
        with torch.no_grad():
            held_out = float(loss_of(self.model, self.held_out))
        if held_out < min((row["held_out"] for row in self.history), default=math.inf):
            self._save_model("best")
        self.history.append({"update": self.update, "training": loss, "held_out": held_out})
        name = "/".join(self.folder.parts[-2:])
        print(f"{name} {self.update} loss {loss:.3f} held out {held_out:.3f}", flush=True)

    def _save_model(self, name: str) -> None:
        self.model.save_pretrained(self.folder / name)
        self.tokenizer.save_pretrained(self.folder / name)

    def _save_state(self) -> None:
        """Write the checkpoint whole or not at all."""
        state = {
            "settings": json.dumps(self.settings),
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "progress": (self.update, self.seconds, self.history),
        }
        part = self.folder / "state.part"
        torch.save(state, part)
        part.replace(self.folder / "state.pt")

    def _resume(self) -> None:
        """Read the checkpoint; one of other settings raises."""
        path = self.folder / "state.pt"
        if not path.exists():
            return
        state = torch.load(path, weights_only=True)
        self._refuse_other(json.loads(state["settings"]))
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.update, self.seconds, self.history = state["progress"]

    def _finished(self) -> bool:
        """Whether the result is here; a result of other settings raises."""
        path = self.folder / "training.json"
        if path.exists():
            self._refuse_other(parse_json(path.read_text(encoding="utf-8"))["settings"])
        return path.exists()

    def _refuse_other(self, settings: Mapping[str, Any]) -> None:
        for name, value in self.settings.items():
            if settings.get(name) != value:
                raise ConsilienceError(
                    f"this folder holds another training: its {name} is {settings.get(name)}, "
                    f"this command's is {value}",
                    where=str(self.folder),
                    todo="Give another --out, or remove the folder.",
                )

    def _finish(self) -> None:
        """Write the last model and the record; the record says that the training is finished."""
        self._save_model("final")
        best = min(self.history, key=lambda row: row["held_out"])
        record = {
            "settings": self.settings,
            "articles": len(self.corpus.articles),
            "tokens": self.corpus.tokens,
            "parameters": sum(weight.numel() for weight in self.model.parameters()),
            "best": best,
            "final": self.history[-1],
            "cpu_seconds": round(self.seconds),
            "history": self.history,
        }
        write_whole(self.folder / "training.json", json.dumps(record, indent=1).encode())
        (self.folder / "state.pt").unlink(missing_ok=True)


def main(
    texts: Annotated[Path, typer.Argument(help="JSONL file with a text in each line.")],
    out: Annotated[Path, typer.Option(help="Folder of the family.")] = Path("models"),
    shares: Annotated[str, typer.Option(help="Percent of the articles.")] = "1,3,10,30,100",
    seeds: Annotated[str, typer.Option(help="Seeds of subset, weights and masks.")] = "0,1,2",
    updates: Annotated[int, typer.Option(help="Optimizer steps of each model.")] = 3000,
    tokens: Annotated[int, typer.Option(help="Tokens of an update.")] = 1024,
    layers: Annotated[int, typer.Option(help="Transformer layers.")] = 2,
    width: Annotated[int, typer.Option(help="Hidden size.")] = 128,
    vocabulary: Annotated[int, typer.Option(help="Entries of the vocabulary.")] = 20000,
    rate: Annotated[float, typer.Option(help="Highest learning rate.")] = 1e-3,
) -> None:
    """Train a model for each share and seed: all shares of the first seed, then of the second."""
    torch.set_num_threads(1)
    logging.disable_progress_bar()
    recipe = Recipe(updates, tokens, layers, width, vocabulary, rate)
    percents, whole_seeds = numbers(shares, float, 100), numbers(seeds, int, 2**32)
    articles = read_texts(texts)
    out.mkdir(parents=True, exist_ok=True)
    tokenizer = load_tokenizer(out / "tokenizer", articles, vocabulary)
    encoded = encode(tokenizer, articles)
    digests = {
        "corpus": hashlib.sha256(texts.read_bytes()).hexdigest(),
        "tokenizer": hashlib.sha256((out / "tokenizer/tokenizer.json").read_bytes()).hexdigest(),
    }
    for seed, share in itertools.product(whole_seeds, percents):
        folder = out / f"share-{share:03g}" / f"seed-{seed}"
        folder.mkdir(parents=True, exist_ok=True)
        settings = {"share": share / 100, "seed": seed} | digests
        Training(folder, recipe, settings, tokenizer, encoded).run()


def numbers(text: str, kind: type[int] | type[float], most: float) -> list[Any]:
    """Comma-separated numbers of a kind, from 0 to ``most``."""
    try:
        values = [kind(part) for part in text.split(",")]
    except ValueError:
        values = [math.nan]
    if not all(0 <= value <= most for value in values):
        raise ConsilienceError(f"'{text}'", expected=f"numbers from 0 to {most:g}: 1,3,10")
    return values


if __name__ == "__main__":
    try:
        typer.run(main)
    except ConsilienceError as error:
        typer.echo(f"error: {error}", err=True)
        sys.exit(2)
