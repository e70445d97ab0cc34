"""What settings may be: the names that options and functions share, and how a model is loaded."""

from dataclasses import dataclass
from typing import Literal

By = Literal["group", "edit", "pattern", "form", "factor", "variant", "metric"]
"""What a table of numbers has a row for. A group is a relation, a task or a group of questions."""

TableFormat = Literal["table", "md", "latex", "csv", "json"]
"""How a table is printed; ``json`` is the whole document of ``--json``."""

Protocol = Literal["published", "strict"]
"""How answers are counted: by the papers' released code, or by the definitions in their text."""

MultiToken = Literal["exclude", "left-to-right"]
"""Masked models: exclude candidates of several tokens, or fill them in from left to right."""

Undecided = Literal["fail", "pass"]
"""What a rule of a gate that is not decided does to the exit status."""

ExportFormat = Literal["jsonl", "csv", "lm-eval"]
"""The format of exported prompts: rows, or a task of lm-evaluation-harness."""

PublishFormat = Literal["eee", "model-card", "eval-results", "dataset"]
"""The format of published results: Every Eval Ever, a model card, the Hub's results, a data set."""

CandidateSet = Literal["objects", "vocabulary"]
"""What may be answered: the objects of the relation, or every word that the model has."""

Long = Literal["truncate", "exclude"]
"""What happens to an item with a variant that is too long for the model."""

Joined = Literal["pair", "string"]
"""Two segments with the tokenizer's separator between, or one string with a space between."""

Pool = Literal["last", "end", "mean"]
"""Where a decoder's head reads: the last token, an end token after it, or the mean of all."""

Loss = Literal["vote", "pairs", "cosine", "released"]
"""The consistency loss (``train/losses.py``): ``pairs`` is that of the ParaRel paper."""

TrainingText = Literal["patterns", "file", "none"]
"""What language modelling reads: the filled patterns, the lines of a file, or nothing."""

Sampling = Literal["proportional", "square-root", "even"]
"""How many batches each task has in an epoch: like its pairs, like their square root, or the same.

The main task always has all of its own once. ``proportional`` is MT-DNN's.
"""

StopOn = Literal["accuracy", "loss"]
"""What early stopping and the best checkpoint look at, on the main task's validation pairs."""

ExampleKind = Literal[
    "right_and_wrong",
    "same_wrong",
    "scattered",
    "other_gold",
    "gold_in_subject",
    "always_right",
]
"""Kinds of examples (``analysis/examples.py``)."""

Colour = Literal["subject", "object", "pattern"]
"""What the colours of a drawing of vectors mean."""

SERVED = ("openai", "llamacpp")
"""Prefixes of models that a server scores: behind a URL, or llama.cpp's in this process."""

SMALL_TASKS = ("rte", "mrpc")
"""The CALUM paper's tasks with few training examples: 2.5K and 3.7K; others have over 105K."""


@dataclass(frozen=True, slots=True)
class Loading:
    """How a model is loaded."""

    device: str = "auto"
    """The device: auto, cpu, cuda, cuda:1 or mps."""
    dtype: str = "float32"
    """The precision of its weights: float32, bfloat16 or float16."""
    revision: str | None = None
    """Its revision on the Hub; None for the latest."""
    trust_remote_code: bool = False
    """Whether the Python code that comes with it is run; without, a model that needs it raises."""


DEFAULT_LOADING = Loading()
"""In single precision on an accelerator, if there is one."""


@dataclass(frozen=True, slots=True)
class Connection:
    """How a model behind a URL is reached. It names the variable of the key, and has no key."""

    base_url: str
    """The address of the API, such as ``http://127.0.0.1:8000/v1``."""
    key_variable: str | None = None
    """The environment variable of the key; None for ``OPENAI_API_KEY``, where the key is safe."""
    max_requests: int | None = None
    """Requests that may be sent; None for any number."""
    max_tokens: int | None = None
    """Tokens that may be read and written; None for any number."""
    price: tuple[float, float] | None = None
    """The price of a million tokens read and of a million written; None where it is not known."""
    concurrency: int | None = None
    """Requests in flight, at most; None for as many as the server answers best."""
    timeout: float = 120.0
    """Seconds after which a request without a complete reply is sent again."""
    scoring: str | None = None
    """How candidates are scored; None for the first strategy that is proved."""
    tokenizer: str | None = None
    """A local tokenizer in place of the server's; None for the server's."""
