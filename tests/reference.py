"""How each kind of model is scored, as plainly as can be: what every fast way must agree with."""

import numpy as np
import torch
from transformers import AutoModelForCausalLM, AutoModelForMaskedLM, AutoTokenizer


def normalised(values):
    values = np.asarray(values, dtype=np.float64)
    return values - np.log(np.exp(values - values.max()).sum()) - values.max()


def reference_masked(folder, query, word):
    """One sentence, all positions, all of the vocabulary: the logit of the word at the mask."""
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForMaskedLM.from_pretrained(folder).eval()
    left, right = query.pattern.around_object(query.subject)
    ids = tokenizer(left + tokenizer.mask_token + right, return_tensors="pt").input_ids
    with torch.no_grad():
        logits = model(ids).logits[0, (ids[0] == tokenizer.mask_token_id).nonzero().item()]
    before = left[-1:] if left[-1:].strip() else "x" * bool(left) + left[-1:]
    own = tokenizer(before + word, add_special_tokens=False).input_ids
    head = tokenizer(before.strip(), add_special_tokens=False).input_ids if before else []
    return logits[own[len(head)]].item() if len(own) == len(head) + 1 else np.nan


def reference_causal(folder, query, word):
    """One sentence by itself: the sum of the log-probabilities of its tokens."""
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder).eval()
    text = query.pattern.fill(query.subject, word)
    ids = [tokenizer.bos_token_id, *tokenizer(text, add_special_tokens=False).input_ids]
    with torch.no_grad():
        steps = model(torch.tensor([ids])).logits[0].double().log_softmax(-1)
    return sum(steps[n, ids[n + 1]].item() for n in range(len(ids) - 1))
