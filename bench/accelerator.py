"""What a GPU does: the same answers as the processor, and how fast. `python bench/accelerator.py`.

Needs CUDA; `--device cpu --queries 200` tries the script on a processor. Prints Markdown.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import product

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")

import contenders
import numpy as np
import prompts
import questions
import torch
import transformers
from transformers import AutoTokenizer, BertConfig, BertForMaskedLM, LlamaConfig, LlamaForCausalLM

from consilience import Candidates, Query, Suite, load_model
from consilience.asking.facts import ask
from consilience.models.candidates import encode
from consilience.models.loading import Pretrained
from consilience.models.masked import MaskedModel
from consilience.models.prompted import OptionScorer
from consilience.suites.facts import sample_facts

transformers.utils.logging.set_verbosity_error()
transformers.utils.logging.disable_progress_bar()

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
WIDTH, INNER, LAYERS = 768, 3072, 12
MINILM = questions.shared() / "models" / "minilm-mlm"  # Perhaps its tokenizer only
TITLES = ("MiniLM", "BERT-base, random weights")[not (MINILM / "model.safetensors").exists() :]


def wait(device: str) -> None:
    """Until the device has done all that it was given."""
    if device == "cuda":
        torch.cuda.synchronize()


def seconds(run: Callable[[], object], device: str, repeats: int = 3) -> float:
    """Median wall time of ``run``, of several calls after one to warm up."""
    taken = []
    for _ in range(repeats + (repeats > 1)):
        wait(device)
        start = time.perf_counter()
        run()
        wait(device)
        taken.append(time.perf_counter() - start)
    return statistics.median(taken[repeats > 1 :])


def product_rate(device: str, dtype: torch.dtype) -> float:
    """Floating-point operations a second of the products of a layer of BERT-base, random data."""
    x = torch.randn(8192 if device == "cuda" else 128, WIDTH, device=device, dtype=dtype)
    up = torch.randn(WIDTH, INNER, device=device, dtype=dtype)
    taken = seconds(lambda: [x @ up for _ in range(50)], device)
    return 50 * 2 * len(x) * WIDTH * INNER / taken


def scored(model, queries: list[Query], words: Candidates) -> tuple[np.ndarray, list[str]]:
    """Log-probabilities (query, candidate), and answers."""
    found, answers = np.full((len(queries), len(words.words)), np.nan), [""] * len(queries)
    for scores in model.score(queries, words):
        values = scores.totals if scores.logprob is None else scores.logprob
        for row, of_row in zip(scores.rows, values, strict=True):
            found[row] = of_row
            answers[row] = scores.words[int(np.nanargmax(of_row))]
    return found, answers


def same_answers(name: str, spec: str, suite: Suite, device: str, queries: int) -> Iterator[str]:
    """Rows: a model on the device in each precision, against the processor in float32."""
    chosen = [
        (relation.candidates, questions.sample(relation, queries)) for relation in suite.relations
    ]
    plain = load_model(spec, device="cpu")
    expected = [scored(plain, asked, words) for words, asked in chosen]
    for dtype in DTYPES:
        model = load_model(spec, device=device, dtype=dtype)
        changed = largest = unsteady = total = 0
        for (words, asked), (numbers, answers) in zip(chosen, expected, strict=True):
            mine, given = scored(model, asked, words)
            changed += sum(a != b for a, b in zip(given, answers, strict=True))
            largest = max(largest, float(np.nanmax(np.abs(mine - numbers))))
            budget, model.budget.tokens = model.budget.tokens, 256
            _, again = scored(model, asked[::-1], words)
            model.budget.tokens = budget
            unsteady += sum(a != b for a, b in zip(given, again[::-1], strict=True))
            total += len(asked)
        yield f"| {name} | {dtype} | {total:,} | {changed} | {largest:.1e} | {unsteady} |"


def bert(tokenizer, device: str, dtype: torch.dtype) -> BertForMaskedLM:
    """BERT-base with random weights, the same ones each time."""
    torch.manual_seed(0)
    return BertForMaskedLM(BertConfig(vocab_size=len(tokenizer))).eval().to(device, dtype)


def of_bert(tokenizer, device: str, dtype: torch.dtype) -> MaskedModel:
    """The same as ``load_model`` would return it."""
    model = bert(tokenizer, device, dtype)
    return MaskedModel(Pretrained("masked", model, tokenizer, {"model": "b"}), "published")


def masked(suite: Suite, device: str, few: int) -> Iterator[str]:
    """ParaRel with the shape of BERT-base: whole, and against the fill-mask pipeline."""
    tokenizer = AutoTokenizer.from_pretrained(MINILM)
    mask = str(tokenizer.mask_token)
    start = time.perf_counter()
    lengths = [
        len(ids)
        for relation in suite.relations
        for pattern in relation.patterns
        for ids in encode(
            tokenizer,
            [mask.join(pattern.around_object(fact.subject)) for fact in relation.facts],
            special=True,
        )
    ]
    tokenising = time.perf_counter() - start
    tokens = sum(lengths)
    needed = 2 * 12 * WIDTH * WIDTH * LAYERS * tokens
    yield f"{len(lengths):,} queries, {tokens:,} tokens; tokenising alone: {tokenising:.1f} s."
    yield ""
    yield "| model | precision | whole, s | queries/s | share of limit | near ties: time x |"
    yield "|---|---|---|---|---|---|"
    for title, name in product(TITLES, DTYPES):
        if title == "MiniLM":
            model = load_model(str(MINILM), protocol="published", device=device, dtype=name)
            share = "-"
        else:
            model = of_bert(tokenizer, device, DTYPES[name])
        model.tie, tie = -1.0, model.tie
        first, every = suite.relations[:4], suite.relations
        runs = {"few": first, "near ties": first, "all": every}
        taken = {}
        for run, relations in runs.items():
            model.tie = tie if run == "near ties" else -1.0
            asking = partial(lambda of, model: [ask(r, model, "s") for r in of], relations, model)
            taken[run] = seconds(asking, device, 1 if run == "all" else 2)
        if title != "MiniLM":
            share = f"{needed / taken['all'] / product_rate(device, DTYPES[name]):.0%}"
        yield (
            f"| {title} | {name} | {taken['all']:.1f} | {len(lengths) / taken['all']:,.0f} | "
            f"{share} | {taken['near ties'] / taken['few']:.2f} |"
        )
    yield ""
    relation = suite.relations[0]
    asked = questions.sample(relation, few)
    yield f"| {len(asked)} queries of {relation.id} | queries/s |"
    yield "|---|---|"
    for name, dtype in list(DTYPES.items())[:1]:
        plain = bert(tokenizer, device, dtype)
        ways = {
            "consilience": (
                contenders.ours(of_bert(tokenizer, device, dtype)),
                asked,
            ),
            "fill-mask, batches of 200": (contenders.fill_mask(plain, tokenizer, 200), asked),
            "fill-mask, a sentence a call": (
                contenders.fill_mask(plain, tokenizer, None),
                asked[: few // 10],
            ),
        }
        for way, (how, part) in ways.items():
            taken = seconds(lambda how=how, part=part: how(part, relation.candidates), device)
            yield f"| {way}, {name} | {len(part) / taken:,.0f} |"


def llama(tokenizer, device: str, *, is_small: bool) -> LlamaForCausalLM:
    """The shape of a model of a billion parameters with random weights."""
    torch.manual_seed(0)
    width = 64 if is_small else 2048
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=width,
        intermediate_size=4 * width,
        num_hidden_layers=2 if is_small else 16,
        num_attention_heads=width // 64 * 1 or 1,
        num_key_value_heads=1 if is_small else 8,
        max_position_embeddings=2048,
        dtype=torch.float32,
    )
    return LlamaForCausalLM(config).eval().to(device)


def chat(tokenizer_folder: str, device: str, *, is_small: bool) -> Iterator[str]:
    """Questions with options in eight variants, against padded batches of texts."""
    tokenizer = AutoTokenizer.from_pretrained(tokenizer_folder)
    yield "1.2 billion parameters, random weights; seconds, in brackets times ours."
    yield ""
    yield "| case | prompts | consilience | a text a prompt | a text an option |"
    yield "|---|---|---|---|---|"
    for name in list(DTYPES)[-1:]:
        plain = llama(tokenizer, device, is_small=is_small).to(DTYPES[name])
        scorer = OptionScorer(Pretrained("causal", plain, tokenizer, {"model": "l"}))
        for case in prompts.CASES:
            asked = prompts.prompts_of_case(case)
            encoded = [scorer.encode(prompt) for prompt in asked]
            runs = {
                "ours": prompts.ours(scorer, asked),
                "paired": prompts.padded(plain, scorer, asked, single=False, tokens=32_768),
            }
            if all(len(target) == 1 for _, targets in encoded for target in targets):
                runs["single"] = prompts.padded(plain, scorer, asked, single=True, tokens=32_768)
            first = {key: np.concatenate(run()) for key, run in runs.items()}
            apart = max(float(np.abs(v - first["ours"]).max()) for v in first.values())
            taken = {key: seconds(run, device) for key, run in runs.items()}
            mine = taken["ours"]
            shown = [
                f"{taken[key]:.3f} ({taken[key] / mine:.1f})" if key in taken else "-"
                for key in ("single", "paired")
            ]
            yield (
                f"| {case.name}, {name}; differ by {apart:.0e} | {len(asked)} | {mine:.3f} | "
                f"{' | '.join(shown)} |"
            )


def main() -> None:
    """Print all tables."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--queries", type=int, default=5000)
    parser.add_argument("--tokenizer", help="a folder: also measure a causal model with it")
    chosen = parser.parse_args()
    device = chosen.device
    is_small = device == "cpu"
    if is_small:  # half precision takes minutes there
        del DTYPES["bfloat16"]
    shown = torch.cuda.get_device_name() if device == "cuda" else "processor"
    print(f"{shown}, torch {torch.__version__}, transformers {transformers.__version__}\n")
    for name, dtype in DTYPES.items():
        rate = product_rate(device, dtype) / 1e12
        print(f"products of a layer of BERT-base, {name}: {rate:.2f} TFLOP/s", flush=True)
    suite = questions.suite()
    if is_small:
        suite = sample_facts(Suite(suite.name, suite.relations[:1]), 4, 0)
    if "MiniLM" in TITLES:
        print("\n| model | precision | queries | changed | log-probability, most | unsteady |")
        print("|---|---|---|---|---|---|")
        for line in same_answers("MiniLM", str(MINILM), suite, device, min(100, chosen.queries)):
            print(line, flush=True)
    print()
    if chosen.tokenizer:
        for line in chat(chosen.tokenizer, device, is_small=is_small):
            print(line, flush=True)
        print()
    for line in masked(suite, device, chosen.queries):
        print(line, flush=True)


if __name__ == "__main__":
    main()
