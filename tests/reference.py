"""Every kind of model scored as plainly as possible, and queries to score: for all tests of models.

A reference runs one forward pass of the transformers model for one candidate (``pieces``: for one
token), on one thread, and sums in double precision.
"""

from contextlib import contextmanager
from functools import cache

import numpy as np
import torch
from transformers import (
    AutoModelForCausalLM,
    AutoModelForMaskedLM,
    AutoModelForSeq2SeqLM,
    AutoTokenizer,
)

from conftest import WORDS
from consilience import Candidates, Pattern, Query
from consilience.models.batches import one_thread
from consilience.models.masked import masked_sentences

PATTERNS = [
    Pattern(text)
    for text in ("The capital of [X] is [Y].", "[Y] is the capital of [X].", "[X] ([Y]) is big.")
]
SUBJECTS = ["France", "Germany", "the old Italy", "Europe", "x", "Spain and Portugal"]
QUERIES = [Query(p, s, WORDS[n % 6]) for p in PATTERNS for n, s in enumerate(SUBJECTS)]
TEMPLATE = "Fill in the blank: {sentence}\nAnswer: {"


def words_of(*words):
    return Candidates(words, (1,) * len(words))


def scores_of(model, queries, candidates, **options):
    """What orders the candidates (query, candidate), and by query why not, or the reasons.

    Totals where a model gives them, else log-probabilities. Checks that every query comes once and
    that the log-probabilities are the normalised totals.
    """
    found, reasons = None, {}
    for scores in model.score(queries, candidates, **options):
        if found is None:
            found = np.full((len(queries), len(scores.words)), 99.0)
        assert (found[scores.rows] == 99).all(), "a query was answered twice"
        values = scores.logprob if scores.totals is None else scores.totals
        found[scores.rows] = values
        if scores.logprob is not None:
            for logprob, row in zip(scores.logprob, values, strict=True):
                known = ~np.isnan(row)
                assert (np.isnan(logprob) == ~known).all()
                if known.any():
                    np.testing.assert_allclose(logprob[known], normalised(row[known]), atol=1e-9)
        reasons |= dict.fromkeys(scores.rows.tolist(), scores.unasked or dict(scores.reasons))
    assert not (found == 99).any(), "a query was not answered"
    return found, reasons


@contextmanager
def budget_of(model, tokens):
    """The model with another number of tokens in a batch."""
    usual, model.budget.tokens = model.budget.tokens, tokens
    yield model
    model.budget.tokens = usual


def normalised(values):
    values = np.asarray(values, dtype=np.float64)
    return values - np.log(np.exp(values - values.max()).sum()) - values.max()


@cache
def plain(folder, auto):
    """The model and the tokenizer of a folder; of these two themselves."""
    if isinstance(folder, tuple):
        return folder
    return auto.from_pretrained(folder).eval(), AutoTokenizer.from_pretrained(folder)


@torch.no_grad()
def _logits(model, **inputs):
    with one_thread():
        return model(
            **{name: torch.tensor([ids], device=model.device) for name, ids in inputs.items()}
        ).logits[0]


def pieces_of(tokenizer, left, word):
    """The tokens of a word after the character on its left; None where it takes no part."""
    before = left[-1:] if left[-1:].strip() else "x" * bool(left) + left[-1:]
    whole = tokenizer(before + word, add_special_tokens=False).input_ids
    head = tokenizer(before.strip(), add_special_tokens=False).input_ids if before else []
    pieces = whole[len(head) :]
    merges = whole[: len(head)] != head
    return None if merges or not pieces or tokenizer.unk_token_id in pieces else pieces


def masked(folder, query, word):
    """One sentence, all positions, all of the vocabulary: the logit of the word at the mask."""
    model, tokenizer = plain(folder, AutoModelForMaskedLM)
    left, right = query.pattern.around_object(query.subject)
    pieces = pieces_of(tokenizer, left, word)
    if pieces is None or len(pieces) > 1:
        return np.nan
    (ids,) = masked_sentences(tokenizer, [(left, right)])
    return _logits(model, input_ids=ids)[ids.index(tokenizer.mask_token_id), pieces[0]].item()


def pieces(folder, query, word):
    """One sentence a token, all positions, all of the vocabulary."""
    model, tokenizer = plain(folder, AutoModelForMaskedLM)
    left, right = query.pattern.around_object(query.subject)
    tokens = pieces_of(tokenizer, left, word)
    if tokens is None:
        return np.nan
    (ids,) = masked_sentences(tokenizer, [(left, right)])
    at, total = ids.index(tokenizer.mask_token_id), 0.0
    for done, token in enumerate(tokens):
        masks = [tokenizer.mask_token_id] * (len(tokens) - done)
        logits = _logits(model, input_ids=ids[:at] + tokens[:done] + masks + ids[at + 1 :])
        total += logits[at + done].double().log_softmax(-1)[token].item()
    return total


def causal(folder, query, word):
    """One sentence alone: the sum of the log-probabilities of its tokens."""
    model, tokenizer = plain(folder, AutoModelForCausalLM)
    text = query.pattern.fill(query.subject, word)
    start = tokenizer.get_vocab().get("<|endoftext|>", tokenizer.cls_token_id)
    ids = [start, *tokenizer(text, add_special_tokens=False).input_ids]
    return _sum(_logits(model, input_ids=ids[:-1]), ids[1:])


def seq2seq(folder, query, word, template=None):
    """The decoder's tokens for one candidate: those of the word and the one that closes it."""
    model, tokenizer = plain(folder, AutoModelForSeq2SeqLM)
    if template is None:
        space = " " * ("<extra_id_0>" not in tokenizer.get_vocab())
        text = query.pattern.fill(query.subject, space + "<extra_id_0>")
        target = f"<extra_id_0> {word} <extra_id_1>"
        labels, first = tokenizer(target, add_special_tokens=False).input_ids, 1
    else:
        text = template.replace("{sentence}", query.pattern.fill(query.subject, "_"))
        labels, first = tokenizer(word).input_ids, 0
    return decoder_sum(
        model, tokenizer(text).input_ids, [model.config.decoder_start_token_id], labels, first
    )


def template(folder, query, word):
    return seq2seq(folder, query, word, TEMPLATE)


def decoder_sum(model, ids, prefix, target, first=0):
    """Log-probability of a decoder's tokens after a prefix, from the ``first`` on."""
    logits = _logits(model, input_ids=ids, decoder_input_ids=[*prefix, *target[:-1]])
    return _sum(logits[len(prefix) - 1 + first :], target[first:])


def _sum(logits, tokens):
    steps = logits.double().log_softmax(-1)
    return sum(steps[at, token].item() for at, token in enumerate(tokens))


class Plain:
    """A model of transformers that reads and writes one text at a time."""

    def __init__(self, model, tokenizer):
        self.model, self.tokenizer = model, tokenizer
        self.start = getattr(model.config, "decoder_start_token_id", None)
        self.is_decoder = model.config.is_encoder_decoder

    @torch.no_grad()
    def logits(self, ids, written):
        """Logits (token, entry) of each of the written tokens and of the next one."""
        if self.is_decoder:
            decoder = torch.tensor([[self.start, *written]])
            return self.model(torch.tensor([ids]), decoder_input_ids=decoder).logits[0]
        return self.model(torch.tensor([[*ids, *written]])).logits[0, len(ids) - 1 :]

    def total(self, ids, target):
        """The log-probability of the tokens of a target after what is read."""
        return _sum(self.logits(ids, target[:-1]), target)

    def tokens(self, ids, most, ends=(), noisy=lambda logits, step: logits):
        """The most probable tokens up to an end token."""
        written, tokenizer = [], self.tokenizer
        ends = {*ends, tokenizer.eos_token_id, tokenizer.sep_token_id, tokenizer.pad_token_id}
        while len(written) < most:
            token = int(noisy(self.logits(ids, written)[-1], len(written)).argmax())
            if token in ends:
                break
            written.append(token)
        return written

    def text(self, ids, most, *, is_line=True, **how):
        """The most probable text, or its first line."""
        text = self.tokenizer.decode(self.tokens(ids, most, **how)).strip()
        return text.split("\n")[0].strip() if is_line else text


def written(model, shown, samples=None):
    """What a model writes, in the order of what is shown."""
    texts = {}
    for rows, of_rows in model.write(shown, samples or [1] * len(shown)):
        texts |= dict(zip(rows.tolist(), of_rows, strict=True))
    return [texts[row] for row in range(len(shown))]
