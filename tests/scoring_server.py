"""A server that computes log-probabilities of a tiny model in the documented shapes of others.

The shapes are those that docs/endpoints.md names: completions of vLLM, SGLang, llama-cpp-python and
OpenAI, and chats of OpenAI. ``ways`` says what a server does, and what it does wrong.
"""

import math
from contextlib import contextmanager
from functools import cache, lru_cache

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from replay_server import replay

VLLM = frozenset({"prompt_logprobs", "echo", "tokenize", "ids"})
SGLANG = frozenset({"echo", "tokenize", "ids"})
LLAMA_CPP_PYTHON = frozenset({"echo"})
OPENAI = frozenset({"ids", "most=5"})


LIES = {
    "constant": lambda at: -2.5,
    "by position": lambda at: -2.0 - 0.01 * at,
    "impossible": lambda at: -math.inf,
}


@cache
def model_of(folder):
    return AutoModelForCausalLM.from_pretrained(folder).eval()


@lru_cache(500)
@torch.inference_mode()
def logprobs_of(folder, ids):
    """Log-probabilities (token, vocabulary) of the token after each."""
    return model_of(folder)(torch.tensor([ids])).logits[0].double().log_softmax(-1)


class TinyServer:
    """Answers requests by a model of a folder."""

    def __init__(self, folder, ways, chat_template=None):
        self.folder = folder
        self.tokenizer = AutoTokenizer.from_pretrained(folder)
        self.ways = set(ways)
        self.tokenizer.chat_template = chat_template
        self.most_in_chats = 5 if "five" in ways else 20
        self.most = next((int(way[5:]) for way in ways if way.startswith("most=")), 20)

    def __call__(self, path, body, headers):
        routes = {"/v1/completions": self.complete, "/v1/chat/completions": self.chat}
        routes["/v1/models"] = self.models
        if "chats only" in self.ways:
            del routes["/v1/completions"]
        if path not in routes:
            return 404, {"error": {"message": f"no route {path}"}}, {}
        return routes[path](body)

    def models(self, body):
        owner = "vllm" if "tokenize" in self.ways else "library"
        return {"object": "list", "data": [{"id": "tiny", "owned_by": owner}]}

    def logprobs(self, ids):
        return logprobs_of(self.folder, tuple(ids))

    def piece(self, token, body):
        if body.get("return_tokens_as_token_ids") and "tokenize" in self.ways:
            return f"token_id:{token}"
        return self.tokenizer.decode([token])

    def complete(self, body):
        prompt = body["prompt"]
        prompts = (
            prompt if isinstance(prompt, list) and not isinstance(prompt[0], int) else [prompt]
        )
        if "no token ids in replies" in self.ways and "return_tokens_as_token_ids" in body:
            return 422, {"detail": "Unexpected fields: {'return_tokens_as_token_ids'}"}, {}
        if "ids" not in self.ways and not isinstance(prompt, str):
            return 400, {"error": {"message": "prompt: expected a text"}}, {}
        if (body.get("logprobs") or 0) > self.most:
            return 400, {"error": {"message": f"logprobs: at most {self.most}"}}, {}
        every = [self.tokenizer(p)["input_ids"] if isinstance(p, str) else p for p in prompts]
        if "another prompt" in self.ways:
            every = [[*ids[:1], every[0][2], *ids[2:]] for ids in every]
        choices = [self.choice(at, ids, body) for at, ids in enumerate(every)]
        counts = {"prompt_tokens": sum(map(len, every)), "completion_tokens": len(every)}
        if "shuffled" in self.ways:
            choices.reverse()
        return {"choices": choices, "usage": counts}

    def choice(self, index, ids, body):
        values = self.logprobs(ids)
        written = int(values[-1].argmax())
        text = self.written(ids, body)
        choice = {"index": index, "text": text, "logprobs": None}
        if body.get("prompt_logprobs") is not None and "prompt_logprobs" in self.ways:
            entries = [
                {
                    str(token): {
                        "logprob": float(values[at, token]),
                        "rank": 1,
                        "decoded_token": self.tokenizer.decode([token]),
                    }
                }
                for at, token in enumerate(ids[1:])
            ]
            choice["prompt_logprobs"] = [None, *entries]
        if body.get("logprobs") is not None and "no logprobs" not in self.ways:
            choice["logprobs"] = self.record(ids, written, values, body)
        if (lies := LIES.keys() & self.ways) and ids:
            self.lie(choice, LIES[lies.pop()])
        return choice

    def lie(self, choice, value):
        """Replace the value of each token by that of its position."""
        for at, entry in enumerate(choice.get("prompt_logprobs") or ()):
            for of_token in (entry or {}).values():
                of_token["logprob"] = value(at)
        if record := choice["logprobs"]:
            values = record["token_logprobs"]
            values[:] = [None if one is None else value(at) for at, one in enumerate(values)]
            tops = record["top_logprobs"]
            record["top_logprobs"] = [one and dict.fromkeys(one, value(0)) for one in tops]

    def written(self, ids, body):
        """The greedy continuation, up to a stop text or the end token."""
        new = []
        while len(new) < body["max_tokens"]:
            new.append(int(self.logprobs([*ids, *new])[-1].argmax()))
            text = self.tokenizer.decode(new)
            if new[-1] == self.tokenizer.eos_token_id:
                return self.tokenizer.decode(new[:-1])
            for stop in body.get("stop", []):
                if stop in text:
                    return text.partition(stop)[0]
        return self.tokenizer.decode(new)

    def record(self, ids, written, values, body):
        top = self.listed(values[-1], body["logprobs"])
        known = {self.piece(token, body): value for token, value in top.items()}
        tokens, logprobs, tops = [written], [float(values[-1, written])], [known]
        if body.get("echo") and "echo" in self.ways:
            echoed = [float(values[at, token]) for at, token in enumerate(ids[1:])]
            tokens, logprobs = [*ids, *tokens], [None, *echoed, *logprobs]
            listed = (
                {self.piece(token, body): float(values[at, token])}
                | {self.piece(t, body): v for t, v in self.listed(values[at], 1).items()}
                for at, token in enumerate(ids[1:])
            )
            tops = [None, *listed, *tops]
        return {
            "tokens": [self.piece(token, body) for token in tokens],
            "token_logprobs": logprobs,
            "top_logprobs": tops,
            "text_offset": [0] * len(tokens),
        }

    def listed(self, values, size):
        """The most probable tokens; a server may list fewer, or values of other things."""
        size -= 1 if "fewer" in self.ways else 0
        shift = 3.0 if "above 1" in self.ways else 0.0
        top = values.topk(size)
        pairs = zip(top.indices.tolist(), top.values.tolist(), strict=True)
        return {token: min(value + shift, 0.0) for token, value in pairs}

    def chat(self, body):
        if "strict" in self.ways and (unknown := {"logprobs", "seed"} & body.keys()):
            message = f'Invalid JSON payload received. Unknown name "{min(unknown)}"'
            return 400, {"error": {"message": message}}, {}
        if "forbids" in self.ways and "logprobs" in body:
            return 403, {"error": {"message": "You are not allowed to request logprobs"}}, {}
        if body.get("top_logprobs", 0) > self.most_in_chats:
            return 400, {"error": {"message": "Invalid value for top_logprobs: at most 5"}}, {}
        if "reasons" in self.ways:
            for name in ("max_tokens", "temperature", "top_p", "logprobs"):
                if name in body:
                    other = "max_completion_tokens" * (name == "max_tokens")
                    message = f"Unsupported parameter: '{name}'. Use '{other}' instead."
                    return 400, {"error": {"message": message}}, {}
            if body["max_completion_tokens"] < 100:
                choice = {"message": {"content": ""}, "finish_reason": "length"}
                return {"choices": [choice]}
        ids = self.tokenizer.apply_chat_template(
            body["messages"], tokenize=True, add_generation_prompt=True, return_dict=False
        )
        values = self.logprobs(ids)[-1]
        record = None
        if body.get("logprobs") and "no logprobs" not in self.ways:
            top = [
                {"token": self.tokenizer.decode([token]), "logprob": value, "bytes": []}
                for token, value in self.listed(values, body["top_logprobs"]).items()
            ]
            record = {"content": [{**top[0], "top_logprobs": top}]}
        size = body.get("max_tokens") or body["max_completion_tokens"]
        message = {"role": "assistant", "content": self.written(ids, {"max_tokens": size})}
        choice = {"index": 0, "message": message, "logprobs": record, "finish_reason": "length"}
        return {"choices": [choice], "usage": {"prompt_tokens": len(ids), "completion_tokens": 1}}


@contextmanager
def scoring_server(folder, ways, **more):
    """A running server; its ``url`` and the requests it ``received``."""
    with replay(TinyServer(folder, ways, **more)) as state:
        yield state
