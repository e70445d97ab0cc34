"""`make bench`: questions of speed; all methods get the same queries, in turn, in a process.

``python bench [speed|counting ...]`` prints tables. The masked model has
random weights: speed does not depend on them.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")

import contenders
import counting
import prompts
import questions
import torch
import transformers
from contenders import in_turn
from tokenizers import BertWordPieceTokenizer
from transformers import AutoModelForMaskedLM, BertConfig, PreTrainedTokenizerFast

from consilience import load_model
from consilience.core.errors import Loading
from consilience.core.provenance import versions
from consilience.models.loading import Pretrained, load_pretrained
from consilience.models.masked import MaskedModel

transformers.utils.logging.set_verbosity_error()
transformers.utils.logging.disable_progress_bar()

ROUNDS = 5  # Of each method, after one to warm up
QUERIES = 500  # Of the masked model
SUBJECTS = 24  # In one pattern of each of two relations, of the causal model


def masked_tokenizer() -> PreTrainedTokenizerFast:
    """A WordPiece of the questions' own words."""
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    tokenizer = BertWordPieceTokenizer(lowercase=True)
    texts = [
        pattern.fill(fact.subject, fact.object)
        for relation in questions.suite().relations
        for fact in relation.facts
        for pattern in relation.patterns
    ]
    tokenizer.train_from_iterator(texts, special_tokens=special, show_progress=False)
    names = {f"{name}_token": f"[{name.upper()}]" for name in ("pad", "unk", "cls", "sep", "mask")}
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer._tokenizer, **names)


def bert() -> Any:
    """BERT-base with random weights, the same ones each time."""
    torch.manual_seed(0)
    return AutoModelForMaskedLM.from_config(BertConfig(vocab_size=30_522)).eval()


def masked(size: int) -> Iterator[str]:
    """The fill-mask pipeline, in batches as released and one by one, and products, against ours."""
    tokenizer, relation = masked_tokenizer(), questions.suite().relations[0]
    queries, words = questions.sample(relation, size), relation.candidates
    few = queries[: max(1, size // 10)]
    ours = contenders.ours(
        MaskedModel(Pretrained("masked", bert(), tokenizer, {"model": "bert"}), "published")
    )
    plain = bert()
    batches = contenders.fill_mask(plain, tokenizer, contenders.RELEASED_BATCH)
    single = contenders.fill_mask(plain, tokenizer, None)
    asked = {
        "consilience": (ours, queries),
        "in batches": (batches, queries),
        "alone": (single, few),
        "products": (contenders.products(plain, tokenizer), queries),
    }
    runs = {name: partial(ask, of, words) for name, (ask, of) in asked.items()}
    seconds = in_turn(runs, ROUNDS)
    changed = sum(
        a != b for a, b in zip(ours(queries, words), batches(queries, words), strict=True)
    )
    base = seconds["consilience"] / len(queries)
    yield f"Masked models: {len(queries)} queries of {relation.id}; {changed} answers differ"
    for name, (_, of) in asked.items():
        each = seconds[name] / len(of)
        ratio = f"consilience is {each / base:.1f} times as fast"
        yield f"  {name:12} {1 / each:8.1f} queries a second; {ratio}"


def causal(size: int) -> Iterator[str]:
    """One sentence for each candidate, in batches of one length, against our trees."""
    model: Any = load_model("packaged:smollm2")
    loaded = load_pretrained("packaged:smollm2", Loading(device="cpu"))
    batches = contenders.sentences_in_batches(loaded.model.eval(), loaded.tokenizer, model.start)
    ways = {
        "one sentence for each": batches,
        "all scores": contenders.ours(model),
        "answers only": contenders.ours(model, every=False),
    }
    for place, chosen in questions.by_position(questions.suite(), size).items():

        def everyone(ask: contenders.Ask, chosen: questions.Asked = chosen) -> list[str]:
            return [answer for of, queries in chosen for answer in ask(queries, of.candidates)]

        seconds = in_turn({name: partial(everyone, ask) for name, ask in ways.items()}, 3)
        answers = [everyone(ask) for ask in ways.values()]
        changed = sum(len({*of}) > 1 for of in zip(*answers, strict=True))
        yield f"Causal models, object {place}: {len(answers[0])} queries; {changed} answers differ"
        for name, each in seconds.items():
            ratio = seconds["one sentence for each"] / each
            yield f"  {name:22} {each:8.2f} s; {ratio:.1f} times as fast"


def options(rounds: int) -> Iterator[str]:
    """A text for each option, and one for each prompt, against ours."""
    yield "Questions with options: processor seconds on one thread"
    yield from prompts.table(rounds)


PARTS: Mapping[str, Callable[[], Iterator[str]]] = {
    "speed": lambda: chain(masked(QUERIES), causal(SUBJECTS), options(3)),
    "counting": counting.table,
}


def main() -> None:
    """All parts, or those that are named."""
    if unknown := set(sys.argv[1:]) - set(PARTS):
        sys.exit(f"no part {', '.join(sorted(unknown))}: the parts are {', '.join(PARTS)}")
    found = ", ".join(f"{name} {version}" for name, version in versions().items())
    processor = Path("/proc/cpuinfo").read_text().partition("model name\t: ")[2].partition("\n")[0]
    print(f"{processor}, {torch.get_num_threads()} threads. {found}.")
    for name in sys.argv[1:] or PARTS:
        for line in PARTS[name]():
            print(line, flush=True)


if __name__ == "__main__":
    main()
