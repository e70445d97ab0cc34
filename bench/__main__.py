"""`make bench`: all methods get the same queries, in one run, in turn; medians and spread.

Models have random weights where only speed is measured: it does not depend on them. Writes
build/benchmarks.md, from which docs/benchmarks.md is written by hand.
"""

from __future__ import annotations

import itertools
import json
import os
import runpy
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import get_args

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")

import contenders
import counting
import endpoints
import load
import machine
import machines
import pairs
import polars as pl
import prompts
import questions
import starts
import torch
import training
import transformers
import writers
from tokenizers import BertWordPieceTokenizer
from transformers import AutoTokenizer, BertConfig, BertForMaskedLM, BertTokenizerFast

from consilience import load_model, measure
from consilience.asking.facts import ask
from consilience.core.errors import Loading
from consilience.core.provenance import versions
from consilience.models.batches import give_memory_back
from consilience.models.fast.products import CPU_TOKENS, Library, Products, speed_up
from consilience.models.loading import Pretrained, load_pretrained
from consilience.models.masked import AtMask, MaskedModel
from consilience.models.prompt_tokens import LONGEST_LABEL
from consilience.runs.folder import RunFolder
from consilience.suites.facts import sample_facts

transformers.utils.logging.set_verbosity_error()
transformers.utils.logging.disable_progress_bar()

REPEATS = 5
QUERIES = 500
WIDTH, INNER, LAYERS = 768, 3072, 12
"""BERT-base."""


def in_turn(
    runs: dict[str, Callable[[], object]],
    repeats: int,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, list[float]]:
    """Seconds of each, run one after the other, again and again, after one round to warm up."""
    for run in runs.values():
        run()
    seconds: dict[str, list[float]] = {each: [] for each in runs}
    for _ in range(repeats):
        for each, run in runs.items():
            start = clock()
            run()
            seconds[each].append(clock() - start)
    return seconds


def rate(seconds: list[float], queries: int) -> tuple[float, str]:
    """Queries a second: median, and a text with the spread."""
    speeds = sorted(queries / each for each in seconds)
    middle = statistics.median(speeds)
    digits = 0 if middle >= 20 else 2
    return middle, f"{middle:.{digits}f} ({speeds[0]:.{digits}f}-{speeds[-1]:.{digits}f})"


def say(lines: list[str], *more: str) -> None:
    """Keep lines of the page, and show them."""
    lines.extend(more)
    print("\n".join(more), flush=True)


def measured(chosen: Products) -> str:
    """Which library multiplies, and what was measured when the model was loaded."""
    speeds = ", ".join(f"{name} {speed:.0f}" for name, speed in chosen.gflops.items())
    return f"Products, measured at load: {chosen.library} ({speeds} GFLOP/s)."


def bert() -> BertForMaskedLM:
    """BERT-base with random weights, the same ones each time."""
    torch.manual_seed(0)
    return BertForMaskedLM(BertConfig(vocab_size=30_522)).eval()


def masked_model(model, tokenizer) -> MaskedModel:
    """A model as ``load_model`` would return it."""
    return MaskedModel(Pretrained("masked", model, tokenizer, {"model": "bert"}), "published")


def masked_tokenizer():
    """A real WordPiece of 30,522 entries; where it is not, one of the questions' own words."""
    folder = questions.shared() / "models" / "minilm-mlm"
    if folder.is_dir():
        return AutoTokenizer.from_pretrained(folder)
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    tokenizer = BertWordPieceTokenizer(lowercase=True)
    texts = [
        pattern.fill(fact.subject, fact.object)
        for relation in questions.suite().relations
        for fact in relation.facts
        for pattern in relation.patterns
    ]
    tokenizer.train_from_iterator(texts, special_tokens=special, show_progress=False)
    return BertTokenizerFast(tokenizer_object=tokenizer._tokenizer)


def operations(lengths: list[int]) -> float:
    """Floating-point operations of the products that the queries need, last layer at the mask."""
    per_token = 2 * 12 * WIDTH * WIDTH
    tokens, queries = sum(lengths), len(lengths)
    attention = sum(4 * length * length * WIDTH for length in lengths) * LAYERS
    last = 2 * 3 * WIDTH * WIDTH * tokens + 2 * 9 * WIDTH * WIDTH * queries
    return (LAYERS - 1) * per_token * tokens + last + attention


def masked(lines: list[str]) -> float:
    """The fill-mask pipeline and others against ours; our queries a second."""
    tokenizer = masked_tokenizer()
    relation = questions.suite().relations[0]
    queries = questions.sample(relation, QUERIES)
    few, fewer = queries[: QUERIES // 10], queries[:1]
    lengths = [
        len(tokenizer(q.pattern.fill(q.subject, tokenizer.mask_token)).input_ids) for q in queries
    ]
    model = masked_model(bert(), tokenizer)
    plain = bert()
    us = contenders.ours(model)
    batches = contenders.fill_mask(plain, tokenizer, contenders.RELEASED_BATCH)
    single = contenders.fill_mask(plain, tokenizer, None)
    words = relation.candidates
    expected = batches(queries, words)
    changed = sum(a != b for a, b in zip(us(queries, words), expected, strict=True))
    limits = {
        packed: machine.products_per_second(WIDTH, INNER, LAYERS, 512, packed)
        for packed in (True, False)
    }
    seconds = in_turn(
        {
            "ours": lambda: us(queries, words),
            "batches": lambda: batches(queries, words),
            "single": lambda: single(few, words),
        },
        REPEATS,
    )
    again = machine.products_per_second(WIDTH, INNER, LAYERS, 512, True)
    sentences = {}
    for name, make in (("minicons", contenders.minicons), ("lm-pub-quiz", contenders.lm_pub_quiz)):
        with suppress(ImportError):
            other = make(plain, tokenizer, causal=False)
            start = time.perf_counter()
            other(fewer, words)
            sentences[name] = len(fewer) / (time.perf_counter() - start)
    mine, shown = rate(seconds["ours"], len(queries))
    rows = [
        ("consilience", shown, "1"),
    ]
    for key, title, count in (
        (
            "batches",
            f"fill-mask pipeline, batches of {contenders.RELEASED_BATCH} as released",
            QUERIES,
        ),
        ("single", "fill-mask pipeline, one sentence a call", len(few)),
    ):
        _, text = rate(seconds[key], count)
        per_query = (
            [each / n for each in seconds[of]] for of, n in (("ours", QUERIES), (key, count))
        )
        times = machines.keep("masked, BERT-base", title, *per_query, unit="queries/s")
        rows.append((title, text, f"{times:.1f}"))
    rows += [
        (f"`{name}`, a sentence a candidate (1 query)", f"{speed:.2f}", f"{mine / speed:,.0f}")
        for name, speed in sentences.items()
    ]
    best = statistics.median([limits[True], again])
    done = operations(lengths) / len(queries) * mine
    shares = machine.of_one_batch(a_batch(bert(), tokenizer, statistics.mode(lengths)))
    say(
        lines,
        "## Masked models: BERT-base",
        "",
        f"{len(queries)} queries of {relation.id}, {statistics.fmean(lengths):.1f} tokens and "
        f"{len(words.words)} candidates each. Answers that differ from the pipeline's: {changed}.",
        "",
        "| method | queries per second, median (slowest-fastest) | consilience is faster by |",
        "|---|---|---|",
        *(f"| {a} | {b} | {c} |" for a, b, c in rows),
        "",
        f"Products at the shapes of the layers, {LAYERS} layers of weights, nothing between: "
        f"{best / 1e9:.0f} GFLOP/s by oneDNN with packed weights, {limits[False] / 1e9:.0f} by "
        f"torch's own choice. Ours does {done / 1e9:.0f} GFLOP/s of needed products: "
        f"{done / best:.0%} of the first, {done / limits[False]:.0%} of the second. "
        + measured(model.products),
        "",
        f"Where the time of a full batch of {statistics.mode(lengths)} tokens goes, on one thread:",
        "",
        "| operation | share |",
        "|---|---|",
        *(f"| `{name}` | {share:.1%} |" for name, share in shares.items() if share > 0.004),
        "",
    )
    return mine


def a_batch(plain: BertForMaskedLM, tokenizer, length: int) -> Callable[[], object]:
    """A full batch of sentences of one length."""
    speed_up(plain, head=False)
    at_mask = AtMask(plain)
    ids = torch.randint(1000, 20_000, (CPU_TOKENS // length, length))
    at = torch.full((len(ids),), length // 2)
    rows = at_mask.head_rows(torch.arange(1000, 1096))

    @torch.inference_mode()
    def run() -> None:
        at_mask.logits(ids, at, rows)

    return run


def causal(lines: list[str]) -> None:
    """One sentence a candidate against one tree a pattern, by where the object stands."""
    model = load_model("packaged:smollm2")
    loaded = load_pretrained("packaged:smollm2", Loading(device="cpu"))
    plain, tokenizer = loaded.model.eval(), loaded.tokenizer
    us, few = contenders.ours(model), contenders.ours(model, every=False)
    batches = contenders.sentences_in_batches(plain, tokenizer, model.start)
    libraries = {}
    for name, make in (("minicons", contenders.minicons), ("lm-pub-quiz", contenders.lm_pub_quiz)):
        with suppress(ImportError):
            libraries[name] = make(plain, tokenizer, causal=True)
    say(
        lines,
        "## Causal models: SmolLM2-135M",
        "",
        "Seconds for the same queries: the subjects of two relations, one pattern of each. In "
        "brackets how many times faster than one sentence for each candidate, by transformers "
        "alone in "
        "batches of one length and 512 tokens, the last token left out: the fastest simple way "
        "that was found. `minicons` and `lm-pub-quiz`: seconds of one call, once. A part of "
        "all ratios is the matrix library; all other methods use torch's default.",
        "",
        measured(model.products),
        "",
        "| object | relations | one sentence for each candidate | all scores | answers only "
        "| changed | " + " | ".join(f"`{name}`, one query" for name in libraries) + " |",
        "|---|---|---|---|---|---|" + "---|" * len(libraries),
    )
    for place, chosen in questions.by_position(questions.suite(), 24).items():

        def everyone(how: contenders.Ask, chosen=chosen) -> list[str]:
            return [answer for r, qs in chosen for answer in how(qs, r.candidates)]

        expected = everyone(batches)
        changed = sum(
            a != b for how in (us, few) for a, b in zip(everyone(how), expected, strict=True)
        )
        runs = {"batches": batches, "all": us, "few": few}
        calls = {name: (lambda how=how: everyone(how)) for name, how in runs.items()}
        taken = in_turn(calls, 3)
        seconds = {k: statistics.median(v) for k, v in taken.items()}
        for key, title in (("all", "all scores"), ("few", "answers only")):
            task = f"causal, SmolLM2-135M, {title}, object {place}"
            machines.keep(task, "one sentence for each candidate", taken[key], taken["batches"])
        relation, queries = chosen[0]
        single = []
        for other in libraries.values():
            start = time.perf_counter()
            other(queries[:1], relation.candidates)
            single.append(f"{time.perf_counter() - start:.1f}")
        names = ", ".join(f"{r.id} ({len(r.candidates.words)} candidates)" for r, _ in chosen)
        base = seconds["batches"]
        say(
            lines,
            f"| {place} | {names}, {sum(len(q) for _, q in chosen)} queries | {base:.1f} | "
            f"{seconds['all']:.2f} ({base / seconds['all']:.1f}) | "
            f"{seconds['few']:.2f} ({base / seconds['few']:.1f}) | {changed} | "
            + " | ".join(single)
            + " |",
        )
    say(lines, "")


def not_the_model(lines: list[str], speed: float) -> None:
    """A whole run whose model costs nothing: tokenising, tables, metrics, writing."""
    suite = questions.suite()
    model = masked_model(bert(), masked_tokenizer())
    model.at_mask.logits = lambda ids, at, rows: torch.rand(len(ids), len(rows.ids))
    seconds = []
    for _ in range(3):
        with tempfile.TemporaryDirectory() as folder:
            start = time.perf_counter()
            run = RunFolder(Path(folder) / "run", {"what": "bench"})
            tables = []
            for relation in suite.relations:
                answers = ask(relation, model, suite.name)
                run.write_answers(relation.id, answers)
                tables.append(answers)
            run.finish(measure(pl.concat(tables), suite, "published"))
            seconds.append(time.perf_counter() - start)
    size = sum(len(each.facts) * len(each.patterns) for each in suite.relations)
    whole = size / speed
    middle = statistics.median(seconds)
    say(
        lines,
        "## A full run",
        "",
        f"{size:,} queries of {suite.name}: about {whole:,.0f} s with BERT-base at this speed. "
        f"All that is not the model (tokenising, tables, metrics, writing; the model's place taken "
        f"by random numbers): {middle:.1f} s ({min(seconds):.1f}-{max(seconds):.1f}), "
        f"{middle / (whole + middle):.1%} of the run; part of it passes while the model works.",
        "",
    )


def a_training(lines: list[str]) -> None:
    """Training steps of the paper's three relations."""
    tokenizer = masked_tokenizer()
    steps = training.steps_of(tokenizer)
    with tempfile.TemporaryDirectory() as folder:
        mib, whole, inside = training.of_the_trainer(tokenizer, steps, folder)
        chosen = training.chosen(tokenizer)
        runs = {
            pairs.ours(library, chosen): training.ours(tokenizer, steps, folder, library)
            for library in get_args(Library)
        }
        runs["the released loop's way"] = training.released(tokenizer, steps)
        found = in_turn(runs, REPEATS)
    middles = {name: statistics.median(each) for name, each in found.items()}
    base = middles["the released loop's way"]
    task = "an update of consistency training, MiniLM-L6"
    own = found[pairs.ours(chosen.library, chosen)]
    machines.keep(task, "the released loop", own, found["the released loop's way"])
    say(
        lines,
        "## Training: MiniLM-L6",
        "",
        "One update: 8 facts in all patterns of each of three relations, for both losses. The "
        "released loop pads to the longest of the data set, reads text and questions separately, "
        "computes the whole vocabulary at every token, compares pairs one by one and updates "
        "weights one by one.",
        "",
        measured(chosen),
        "",
        "| method | seconds per update, median (fastest-slowest) | faster by |",
        "|---|---|---|",
        *(
            f"| {name} | {middles[name]:.2f} ({min(each):.2f}-{max(each):.2f}) "
            f"| {base / middles[name]:.2f} |"
            for name, each in found.items()
        ),
        "",
        f"A training of {training.STEPS} updates by the Trainer: {whole:.1f} s, of which "
        f"{1 - inside / whole:.1%} outside the model and its gradients. Peak memory beyond the "
        f"loaded model: {mib:,.0f} MiB, gradients and optimizer included.",
        "",
    )


def chat_training(lines: list[str]) -> None:
    """An update of a training on questions, against TRL's SFTTrainer."""
    say(
        lines,
        "## Training on questions",
        "",
        "One update on questions of `mini-questions` in 8 variants that learns the same answers "
        "(`--loss bct`) with the same adapters (rank 8) and AdamW. Processor time, medians; in "
        "brackets how many times faster consilience is. Memory: the peak beyond the loaded models.",
        "",
        "| model, answers | questions, tokens | method | seconds per update | MiB |",
        "|---|---|---|---|---|",
    )
    with tempfile.TemporaryDirectory() as folder:
        cases = itertools.product(training.chat_models(Path(folder)), (None, "sum"))
        for at, ((name, model, batch), rule) in enumerate(cases):
            place = Path(folder, f"training-{at}")
            updates, tokens = training.question_updates(model, place, batch, rule)
            memory = {}
            for way, update in updates.items():
                give_memory_back()
                memory[way] = machine.peak(update)
            found = in_turn(updates, 3, time.process_time)
            base, scored = statistics.median(found["consilience"]), "texts" if rule else "letters"
            for way, each in found.items():
                middle = statistics.median(each)
                row = f"| {name}, {scored} | {batch}, {tokens:,} | {way} | {middle:.2f} "
                say(lines, row + f"({middle / base:.2f}) | {memory[way]:,.0f} |")
            if way == training.TRL:
                task = f"an update on {batch} questions ({scored}), {name}"
                machines.keep(task, way, found["consilience"], found[way])
    if training.TRL not in updates:
        say(lines, "", "TRL is not installed: pip install trl.")
    say(lines, "")


def a_fine_tuning(lines: list[str]) -> None:
    """An epoch of RTE."""
    runs, whole, chosen = pairs.contenders()
    found = in_turn(runs, REPEATS)
    middles = {name: statistics.median(each) for name, each in found.items()}
    own = [whole * each for each in found[pairs.ours(chosen.library, chosen)]]
    for name in (pairs.LONGEST, pairs.PLAIN):
        theirs = [whole * each for each in found[name]]
        machines.keep("an epoch of RTE, MiniLM-L6", name, own, theirs)
    say(
        lines,
        "## Fine-tuning on sentence pairs: MiniLM-L6",
        "",
        f"An epoch of RTE's 2,490 pairs, {pairs.SIZE} in a batch, estimated from {pairs.SAMPLE} "
        "batches of all lengths. consilience makes batches of similar lengths.",
        "",
        measured(chosen),
        "",
        "| method | seconds per epoch, median (fastest-slowest) | faster by |",
        "|---|---|---|",
        *(
            f"| {name} | {whole * middles[name]:.0f} ({whole * min(each):.0f}-"
            f"{whole * max(each):.0f}) | {middles[pairs.PLAIN] / middles[name]:.2f} |"
            for name, each in found.items()
        ),
        "",
    )


def labels(lines: list[str]) -> None:
    """Labels of sentence pairs, chosen and written by a causal model."""
    runs, count, tokens, writer = writers.contenders()
    answers = [run() for run in runs.values()]
    changed = [sum(a != b for a, b in zip(answers[0], each, strict=True)) for each in answers]
    found = in_turn(runs, 2)
    machines.keep(
        "labels of pairs, SmolLM2-135M",
        writers.BATCHES,
        found["consilience"],
        found[writers.BATCHES],
    )
    middles = {name: statistics.median(each) for name, each in found.items()}
    say(
        lines,
        "## Labels of sentence pairs: SmolLM2-135M",
        "",
        f"{count} forms of {writers.TASK.name.upper()} pairs, {tokens / count:.0f} tokens each. A "
        f"label is chosen by its probability, and up to {LONGEST_LABEL} tokens are written. "
        "The simple way reads a prompt again for each label and for writing.",
        "",
        measured(writer.products),
        "",
        "| method | seconds, median (fastest-slowest) | consilience is faster by | "
        "answers changed |",
        "|---|---|---|---|",
        *(
            f"| {name} | {middles[name]:.1f} ({min(each):.1f}-{max(each):.1f}) "
            f"| {middles[name] / middles['consilience']:.1f} | {different} |"
            for (name, each), different in zip(found.items(), changed, strict=True)
        ),
        "",
    )


def options(lines: list[str]) -> None:
    """Questions with four options in eight variants, scored by label and by text."""
    say(
        lines,
        "## Questions with options: SmolLM2-135M",
        "",
        "Questions of `mini` with four options in eight variants: two phrasings in four orders of "
        "the options. Options are scored by their label or by their text. Processor time on one "
        "thread, medians; the linear layers of all methods are packed. In brackets how many times "
        "faster consilience is, and how many times more tokens the method reads. A text for each "
        "option, padded and sorted by length, is how lm-evaluation-harness scores options; a text "
        "for each prompt suffices for labels of one token.",
        "",
        "| case | prompts, tokens | consilience, seconds | a text for each prompt | "
        "a text for each option |",
        "|---|---|---|---|---|",
    )
    for line in prompts.table(3):
        say(lines, line)
    say(lines, "")


def start_up(lines: list[str]) -> None:
    """What a run costs whose model has next to nothing to do."""
    say(
        lines,
        "## Start-up",
        "",
        "Seconds from the command to the end of `consilience probe` with nine questions, each run "
        "a process of its own. The first run has an empty cache. A bare script imports torch and "
        "transformers, loads the same weights and tokenizer, and does one pass. Medians; processor "
        "seconds in brackets. The ratios are those of a later run and the bare script after it.",
        "",
        "| model | first run | later run | a bare script | ratio (least-greatest) | "
        "ratio of processor seconds |",
        "|---|---|---|---|---|---|",
        *starts.table(5),
        "",
    )


def servers(lines: list[str]) -> None:
    """Models behind a URL."""
    say(
        lines,
        "## Models behind a URL",
        "",
        f"llama.cpp's server (xllamacpp) with SmolLM2-135M and {endpoints.SLOTS} slots, in a "
        "process of its own on the same processor; lm-eval 0.4.13's `local-completions`; a plain "
        "loop of one request after the other on one connection. Nobody gets the prompts of "
        "another method or round, so no method finds them in the server's cache.",
        "",
        *endpoints.tables(in_turn, REPEATS),
        "",
    )


def memory(lines: list[str]) -> None:
    """Peak memory beyond the loaded model, against the number of queries."""
    rows = []
    for part in (64, 16, 4, 1):
        done = subprocess.run(
            [sys.executable, __file__, "--memory", str(part)],
            capture_output=True,
            text=True,
            check=True,
        )
        rows.append(json.loads(done.stdout.splitlines()[-1]))
    say(
        lines,
        "## Memory",
        "",
        "Peak beyond the loaded model (BERT of 2 layers, the width of BERT-base), by the number of "
        "queries of one run. What still grows is what the allocator keeps (docs/log.md).",
        "",
        "| queries | MiB |",
        "|---|---|",
        *(f"| {row['queries']:,} | {row['mib']:,.0f} |" for row in rows),
        "",
    )


def counts(lines: list[str]) -> None:
    """score, compare and report, as commands, against an earlier revision."""
    place = questions.shared() / "data" / "pararel"
    say(
        lines,
        "## Counting",
        "",
        "Commands in processes of their own, each once; seconds with the start of Python, memory "
        "at most. Before: the checkout that `CONSILIENCE_BEFORE` names, taking turns.",
        "",
    )
    for line in counting.table(place if place.is_dir() else None):
        say(lines, line)
    say(lines, "")


def large_runs(lines: list[str]) -> None:
    """score, compare and report of large runs, at four sizes each."""
    say(lines, "## Load", "", f"{machine.name()}. Exponents are since the size before.", "")
    for line in load.table():
        say(lines, line)
    say(lines, "")


def measure_memory(part: int) -> None:
    """In a process of its own: a ``part``-th of the facts of every relation."""
    suite = questions.suite()
    torch.manual_seed(0)
    small = BertForMaskedLM(BertConfig(vocab_size=30_522, num_hidden_layers=2)).eval()
    model = masked_model(small, masked_tokenizer())
    count = 0

    def run() -> None:
        nonlocal count
        for relation in suite.relations:
            size = max(1, len(relation.facts) // part)
            chosen = sample_facts(suite, size, 0).relation(relation.id)
            count += ask(chosen, model, suite.name).height

    mib = machine.peak(run)
    print(json.dumps({"queries": count, "mib": mib}))


PARTS: dict[str, Callable[[list[str]], None]] = {
    "masked": lambda lines: not_the_model(lines, masked(lines)),
    "training": a_training,
    "chat": chat_training,
    "pairs": a_fine_tuning,
    "memory": memory,
    "counting": counts,
    "load": large_runs,
    "causal": causal,
    "labels": labels,
    "options": options,
    "starts": start_up,
    "endpoints": servers,
}
"""What is measured, by the names that ``python bench NAME ...`` takes."""


def main() -> None:
    """All parts; or, only shown, those that are named; or a table of simulations."""
    if sys.argv[1:2] == ["--memory"]:
        measure_memory(int(sys.argv[2]))
        return
    if "".join(sys.argv[1:2]).endswith("simulations"):
        name = sys.argv.pop(1)
        runpy.run_path(str(Path(__file__).with_name(f"{name}.py")), run_name="__main__")
        return
    if unknown := set(sys.argv[1:]) - set(PARTS):
        sys.exit(f"no part {', '.join(sorted(unknown))}: the parts are {', '.join(PARTS)}")
    lines: list[str] = []
    found = versions()
    say(
        lines,
        "# Benchmarks",
        "",
        "Made by `make bench`: one process, all methods get the same queries, in turn, "
        f"{REPEATS} times after one round to warm up (causal models 3 times). Random weights for "
        "BERT-base: speed does not depend on them. Seconds and ratios are those of this processor.",
        "",
        f"Machine: {machine.name()}. {datetime.now(UTC):%Y-%m-%d}. "
        + ", ".join(f"{name} {version}" for name, version in found.items())
        + ".",
        "",
    )
    for name in sys.argv[1:] or PARTS:
        PARTS[name](lines)
    print("Of this machine:", machines.write(machine.processor(), questions.ROOT / "build"))
    if not sys.argv[1:]:
        page = questions.ROOT / "build" / "benchmarks.md"
        page.parent.mkdir(exist_ok=True)
        page.write_text("\n".join(lines).rstrip() + "\n", encoding="utf-8")
        print(f"Written: {page}")


if __name__ == "__main__":
    main()
