"""The options of commands: types that several have, and the options that functions pass on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from consilience.core.errors import (
    SILENT,
    By,
    CandidateSet,
    Connection,
    ConsilienceError,
    Loading,
    Loss,
    Progress,
    Protocol,
    TrainingText,
)
from consilience.options import (
    FACTS,
    PAIRS,
    QUESTIONS,
    Declared,
    FilePath,
    Named,
    Option,
    OptionalPath,
    Options,
    Paths,
    parameters,
)

DEFAULT_MODEL = "packaged:smollm2"

SERVER, HERE = "openai", ("baseline", "packaged", "none")  # Schemes of models

OF_SERVERS = ("base_url", "api_key_env", "max_requests", "concurrency", "tokenizer")
"""Options of models behind a URL."""


def is_judge(match: str | None) -> bool:
    """Whether a rule of ``--match`` names a model that judges what means the same."""
    return str(match).startswith("embedding:")


# fmt: off
SuiteArgument = Annotated[str, Option("The suite: mini, pararel or a folder.", "SUITE")]
RunSpecs = Annotated[Paths, Option(
    "Runs or files of answers; LABEL=RUN names one. The first is the reference.", "RUN")]
Runs = Annotated[Paths, Option("Runs or files of answers; LABEL=RUN names one.", "RUN")]
Groups = Annotated[Sequence[str] | None, Option(
    "Only these relations or groups, such as P36,P19.", "G,G")]
Vary = Annotated[Named, Option(
    "A factor and its levels: order=rotations, labels=A,1. Of facts language=L,L "
    "(docs/factors.md).", "FACTOR=LEVELS", kinds=FACTS + QUESTIONS, is_repeated=True, joins=",")]
Cells = Annotated[str, Option(
    "All combinations of levels (full), each alone (one-factor), or K <= 200 drawn for each "
    "question (random:K).", "DESIGN", pattern=r"full|one-factor|random:([1-9]\d?|1\d\d|200)",
    kinds=QUESTIONS, is_rare=True)]
ColumnNames = Annotated[Named, Option(
    "Columns of the file: question=Q1+Q2,options=A+B+C+D.", "OURS=YOURS", kinds=QUESTIONS,
    joins="+")]
AnswerColumns = Annotated[ColumnNames, {"kinds": (), "pattern": ".+=.*", "help":
    "Columns, also of factors: item=Id,gold=Right,template=Style."}]
SheetFolder = Annotated[FilePath, Option("Write the sheets to this new folder.", "DIR", "-o")]
DataDir = Annotated[OptionalPath, Option(
    "Where fetched suites are [env: CONSILIENCE_DATA].", "DIR")]
Folder = Annotated[OptionalPath, Option(
    "Keep the run in this folder [default: a new one in runs/].", "DIR", "-o")]
AsQuestions = Annotated[int | None, Option(
    "Ask facts as questions with K wrong options; 0 for open ones.", "K", min=0,
    kinds=FACTS + QUESTIONS, is_rare=True)]
Device = Annotated[str, Option(
    "auto, cpu, cuda, cuda:1 or mps.", "DEVICE", pattern="auto|cpu|mps|cuda(:\\d+)?")]
TrustRemoteCode = Annotated[bool, Option(
    "Run the Python code of the model. Read it first.", is_rare=True, needs_trust=bool)]
BaseUrl = Annotated[str | None, Option(
    "Ask --model at this API, such as http://127.0.0.1:8000/v1.", "URL", needs_trust=bool)]
ApiKeyEnv = Annotated[str | None, Option(
    "The variable of the key [default: OPENAI_API_KEY, over https or to this machine].", "NAME",
    needs_trust=bool, is_rare=True)]
Bf16 = Annotated[bool, Option("Multiply in bfloat16, on a GPU.", is_rare=True)]
StudyFile = Annotated[FilePath, Option("The study: a TOML file (docs/studies.md).", "FILE")]
RunPath = Annotated[FilePath, Option("The folder of a run, or a file of answers.", "RUN")]
"""Types of options that several commands have; ``Annotated[Groups, {"is_rare": True}]`` replaces
facts of one."""
@dataclass(frozen=True, kw_only=True)
class AskedOptions(Options):
    """What is asked: by ``probe``, and in what ``suite export`` writes."""

    suite: Annotated[str, Option(
        "What to ask: mini, pararel, rte, mmlu, ..., a file or a folder.", "S", "-s")] = "mini"
    data: Annotated[str | None, Option(
        "The pairs: a file or hub:SPLIT; FILE#1, FILE#2: a half.", "F", kinds=PAIRS)] = None
    columns: ColumnNames = None
    groups: Annotated[Groups, {"kinds": FACTS + QUESTIONS}] = None
    limit: Annotated[int | None, Option(
        "Facts or questions of each group, or pairs, at most.", min=1, short="-n")] = None
    vary: Vary = None
    design: Cells = "full"
    template: Annotated[str | None, Option(
        "The text around what is asked, with {question}, {options}. Or plain, chat, or a "
        "TOML file (docs/prompts.md).", "TEXT")] = None
    shots: Annotated[int, Option(
        "Solved questions of the group before each question.", min=0, kinds=QUESTIONS,
        is_rare=True)] = 0
    seed: Annotated[int, Option(
        "Seed of --limit, orders, samples, random:K.", min=0, is_rare=True)] = 0
    perturbations: Annotated[Sequence[str] | None, Option(
        "Forms, such as reverse, signal (the default), reverse_signal, FILE.py:FUNCTION.", "P,P",
        kinds=PAIRS, is_rare=True, needs_trust=lambda names: ".py:" in str(names))] = None


@dataclass(frozen=True, kw_only=True)
class ProbeOptions(AskedOptions):
    model: Annotated[str, Option(
        "The model: a Hub id, ID@REVISION, a folder, a GGUF file. Or packaged:smollm2, "
        "baseline:majority|random|oracle|constant|first, with --base-url its name there.", "M",
        "-m")] = DEFAULT_MODEL
    generate: Annotated[bool, Option(
        "Let the model write its answer.", kinds=PAIRS + QUESTIONS)] = False
    then: Annotated[Sequence[str] | None, Option(
        "After each written answer, say this line in the same chat, such as 'Are you sure?', and "
        "read the answer to it.", "TEXT", pattern=r"\S(.*\S)?", kinds=QUESTIONS, is_repeated=True,
        is_rare=True)] = None
    match: Annotated[str | None, Option(
        "How an answer is found in a text, such as contains. Or exact, number, last-number, "
        "regex:PATTERN, embedding:MODEL (docs/free-text.md) [default: contains for open "
        "questions, else exact].", "RULE", kinds=QUESTIONS)] = None
    option_score: Annotated[str | None, Option(
        "Score an option by its label, or its text: sum, mean, bytes [default: label, where there "
        "are].", "RULE", kinds=QUESTIONS, is_rare=True)] = None
    temperature: Annotated[float, Option(
        "Sample tokens at this temperature; 0 writes the most probable.", min=0, kinds=QUESTIONS,
        is_rare=True)] = 0.0
    max_new_tokens: Annotated[int, Option(
        "Tokens that the model writes, at most.", min=1, kinds=QUESTIONS, is_rare=True)] = 32
    base_url: BaseUrl = None
    api_key_env: ApiKeyEnv = None
    max_requests: Annotated[int | None, Option(
        "Stop before request N + 1.", min=1, is_rare=True)] = None
    concurrency: Annotated[int | None, Option(
        "Requests in flight [default: 8].", min=1, is_rare=True)] = None
    tokenizer: Annotated[str | None, Option(
        "Score by token ids, with this model's tokenizer: a Hub id or a folder.", "M",
        is_rare=True)] = None
    device: Device = "auto"
    dtype: Annotated[Literal["float32", "bfloat16", "float16"], Option(
        "The numbers of the weights.", is_rare=True)] = "float32"
    trust_remote_code: TrustRemoteCode = False
    adapter: Annotated[OptionalPath, Option(
        "Merge this PEFT adapter into the weights.", "DIR", is_rare=True)] = None
    as_questions: AsQuestions = None
    protocol: Annotated[Protocol | None, Option(
        "Count as the papers' code (published) or text (strict) [default: published for ParaRel].",
        kinds=FACTS, is_rare=True)] = None
    candidates: Annotated[CandidateSet, Option(
        "What a masked model chooses among: words of one token, also of several (pieces), all "
        "words.", kinds=FACTS, is_rare=True)] = "objects"
    data_dir: Annotated[
        DataDir, {"kinds": FACTS + QUESTIONS, "is_rare": True}] = None
    noise_floor: Annotated[int | None, Option(
        "Ask N queries again in other batches, and count changes [default: 0; of a server a "
        "twentieth].", "N", min=0, is_rare=True)] = None
    out: Folder = None

    def __post_init__(self) -> None:
        """Check every value, and name a model behind a URL as such: ``openai:NAME``."""
        super().__post_init__()
        scheme = self.model.partition(":")[0]
        if self.base_url and scheme not in (SERVER, *HERE) and not Path(self.model).exists():
            object.__setattr__(self, "model", f"{SERVER}:{self.model}")
            scheme = SERVER
        of_weights = ["adapter"]
        if not is_judge(self.match):  # else the judge is loaded here
            of_weights += ["dtype", "device"] if scheme == SERVER else ["dtype"]
        if scheme in (SERVER, "baseline"):  # a study has one device for baselines, too
            self._refuse(of_weights, "weights that are here")

    def _refuse(self, names: Sequence[str], expected: str) -> None:
        """Raise for options of other models."""
        for name in names:
            parameter = parameters(ProbeOptions)[name]
            if getattr(self, name) != parameter.default:
                raise refusal(parameter, f"--model {self.model}", expected)

    @property
    def loading(self) -> Loading:
        return Loading(self.device, self.dtype, self.trust_remote_code, self.adapter)

    @property
    def connection(self) -> Connection | None:
        """How a model behind a URL is reached; None for a model that runs here."""
        scheme, _, name = self.model.partition(":")
        if scheme != SERVER:
            self._refuse(OF_SERVERS, "a model behind a URL: openai:NAME")
            return None
        if not name:
            raise ConsilienceError(f"--model {self.model} names no model", expected="openai:NAME")
        if self.base_url is None:
            found = f"{self.model} needs --base-url, such as http://127.0.0.1:8000/v1"
            raise ConsilienceError(found)
        return Connection(
            self.base_url, self.api_key_env, self.max_requests, self.concurrency,
            self.tokenizer, self.trust_remote_code,
        )


EXAMPLES = {
    "facts": "a suite of facts, such as mini",
    "pairs": "a task of sentence pairs, such as mrpc",
    "questions": "a file of questions, such as questions.csv",
}
"""A suite of each kind."""


def refuse_options(options: Any, kind: str, suite: str) -> None:
    """Raise for an option that is not at its default and is for other kinds of suites."""
    for name, parameter in parameters(options.__class__).items():
        kinds = parameter.option.kinds or (kind,)
        if kind not in kinds and getattr(options, name) != parameter.default:
            expected = f"--suite {' or '.join(EXAMPLES[other] for other in kinds)}"
            raise refusal(parameter, suite, expected)


def refusal(parameter: Declared, other: str, expected: str) -> ConsilienceError:
    """The error for an option that does not go with something else."""
    todo = f"Leave {parameter.flag} out."
    return ConsilienceError(f"{parameter.flag} with {other}", expected=expected, todo=todo)




@dataclass(frozen=True)
class ScoreOptions(Options):
    answers: Annotated[FilePath, Option(
        "The folder of a run, a table, or a log of another harness.", "ANSWERS")]
    _: KW_ONLY
    columns: AnswerColumns = None
    suite: Annotated[str | None, Option(
        "What was asked: a file of `suite export`, or a suite of facts.", "S", "-s")] = None
    model: Annotated[str | None, Option(
        "Of a file with several models: count this one.", "M")] = None
    match: Annotated[str | None, Option(
        "How an answer is found in a text: a rule of probe. Or which scorer or filter of a log "
        "counts [default: what the log says, else as probe].", "RULE")] = None
    protocol: Annotated[Protocol | None, Option(
        "Count as the papers' code (published) or text (strict) [default: that of the run].",
        is_rare=True)] = None
    out: Annotated[OptionalPath, Option("Also keep a run in this folder.", "DIR", "-o")] = None
    by: Annotated[By | None, Option("Print the numbers of each of these.")] = None


@dataclass(frozen=True)
class ReproduceOptions(Options):
    name: Annotated[str | None, Option(
        "pararel, calum, or one table or figure. Leave it out to list all.")] = None
    _: KW_ONLY
    out: Annotated[FilePath, Option(
        "Keep the runs in this folder.", "DIR", "-o")] = Path("runs/reproduce")
    add: Annotated[Sequence[str] | None, Option(
        "Add a row for your own model, or its run of that suite; others only if --only names them.",
        "NAME=M", is_repeated=True, joins=",", pattern="[^=]+=.+")] = None
    only: Annotated[Sequence[str] | None, Option("Make only these rows.", "ROW,ROW")] = None
    data: Annotated[OptionalPath, Option(
        "Read tasks from the files TASK/SPLIT.* of this folder [default: from the Hub].",
        "DIR")] = None
    device: Device = "auto"
    dry_run: Annotated[bool, Option(
        "Print what is needed and the commands, and run nothing.")] = False
    progress: Progress = SILENT


@dataclass(frozen=True)
class ExportOptions(AskedOptions):
    suite: Annotated[str, Option(
        "The suite: a name, a folder or a file of questions.", "SUITE")] = "mini"


@dataclass(frozen=True)
class RewriteOptions(Options):
    suite: Annotated[str, Option("The suite: a name, a folder, or a file of questions.", "SUITE")]
    _: KW_ONLY
    out: Annotated[FilePath, Option(
        "Write the proposals to this new file (.jsonl or .csv).", "FILE", "-o")]
    model: Annotated[str | None, Option(
        "The model that writes [default: none; rules rewrite questions].", "M", "-m")] = None
    columns: ColumnNames = None
    groups: Groups = None
    samples: Annotated[int, Option("Texts for each base pattern or question.", min=1)] = 8
    seed: Annotated[int, Option("Seed of what is drawn.", min=0)] = 0
    device: Device = "auto"
    base_url: BaseUrl = None
    api_key_env: ApiKeyEnv = None
    progress: Progress = SILENT

    @property
    def asked(self) -> ProbeOptions:
        """The options of ``probe`` for the model that writes."""
        return ProbeOptions(
            model=self.model or "none", device=self.device, base_url=self.base_url,
            api_key_env=self.api_key_env,
        )




@dataclass(frozen=True, kw_only=True)
class ImproveOptions(Options):
    model: Annotated[str, Option("The masked or causal model: a Hub id or a folder.", "M", "-m")]
    suite: Annotated[str, Option("Train on this suite of facts, or of questions.", "S", "-s")]
    train_groups: Annotated[Sequence[str], Option(
        "Train on these groups [default: 60 % of the questions of all groups].", "G,G")] = ()
    validation_groups: Annotated[Sequence[str], Option(
        "Choose the checkpoint by these groups.", "G,G")] = ()
    vary: Annotated[Vary, {"kinds": QUESTIONS}] = None
    design: Cells = "full"
    hold_out_factor: Annotated[Sequence[str], Option(
        "Measure these factors, and do not train on them.", "F,F", kinds=QUESTIONS)] = ()
    template: Annotated[str | None, Option(
        "The text around a question, as of probe.", "TEXT", kinds=QUESTIONS, is_rare=True)] = None
    option_score: Annotated[str | None, Option(
        "Score an option by its label, or its text: sum, mean, bytes.", "RULE", kinds=QUESTIONS,
        is_rare=True)] = None
    columns: ColumnNames = None
    as_questions: Annotated[AsQuestions, {"kinds": QUESTIONS}] = None
    out: Annotated[OptionalPath, Option(
        "Write models and runs to this folder [default: a new one in runs/].", "DIR", "-o")] = None
    dry_run: Annotated[bool, Option("Print what is trained and asked, and train nothing.")] = False
    loss: Annotated[Loss, Option(
        "vote: that of all variants; pairs: as ParaRel. Or pairs-vocabulary, of facts.")] = "vote"
    weight: Annotated[float, Option("The weight of the consistency loss.", "W", min=0)] = 1.0
    mlm: Annotated[TrainingText | None, Option(
        "Language modelling on the filled patterns [default], or on nothing.", kinds=FACTS,
        is_rare=True)] = None
    text: Annotated[OptionalPath, Option(
        "Lines of text, for perplexity.", "FILE", is_rare=True)] = None
    train_facts: Annotated[int, Option(
        "Facts or questions of each group to train on, at most.", min=1, is_rare=True)] = 100
    batch_size: Annotated[int, Option(
        "Questions, or facts of each relation, in an update, at most.", min=1, is_rare=True)] = 8
    epochs: Annotated[int, Option("How often each is read.", min=1)] = 3
    learning_rate: Annotated[float | None, Option(
        "The highest learning rate [default: 6e-5 of facts; of questions 3e-4 with LoRA].", "R",
        min=0, is_rare=True)] = None
    validation_facts: Annotated[int, Option(
        "Facts or questions of each validation group, at most.", min=1, is_rare=True)] = 200
    seed: Annotated[int, Option("Seed of the training.", "N", min=0, max=2**32 - 1)] = 42
    limit: Annotated[int | None, Option(
        "Facts or questions of each measured group, at most.", min=1, short="-n")] = None
    also: Annotated[Sequence[str], Option("Measure these suites, too.", "S,S")] = ()
    lora_rank: Annotated[int | None, Option(
        "The rank of LoRA; 0 trains all weights [default: 8 of questions, 0 of facts].", min=0,
        is_rare=True)] = None
    bf16: Bf16 = False
    device: Device = "auto"
    trust_remote_code: TrustRemoteCode = False
    progress: Progress = SILENT


@dataclass(frozen=True, kw_only=True)
class FinetuneOptions(Options):
    model: Annotated[str, Option("The model: a Hub id, a folder, a GGUF file.", "M", "-m")]
    task: Annotated[str, Option("The task: a name, or a TOML file.", "T")]
    train: Annotated[str, Option("Training pairs: a file, or hub:SPLIT.", "F")]
    validation: Annotated[str, Option("Pairs that choose the checkpoint; FILE#1 is a half.", "F")]
    out: Annotated[FilePath, Option(
        "Write the models to this folder, as seed-N/TASK.", "DIR", "-o")]
    with_task: Annotated[Sequence[str] | None, Option(
        "Train another task too: mrpc=TRAIN.", "T=F", is_repeated=True, is_rare=True, joins=",",
        pattern="[^=]+=.+")] = None
    seed: Annotated[int, Option("Seed of the training.", "N", min=0, max=2**32 - 1)] = 0
    learning_rate: Annotated[float, Option("The highest learning rate.", "R", min=0)] = 1e-05
    batch_size: Annotated[int, Option("Pairs in a batch.", min=1)] = 64
    epochs: Annotated[int, Option("How often each pair is read.", min=1)] = 10
    patience: Annotated[int, Option(
        "Stop after so many epochs without a better validation; 0 never.", min=0, is_rare=True)] = 3
    max_length: Annotated[int | None, Option(
        "Tokens of a pair, at most [default: the model's limit].", min=8, is_rare=True)] = None
    limit: Annotated[int | None, Option(
        "Pairs of each task to train on, at most.", min=1, short="-n")] = None
    bf16: Bf16 = False
    device: Device = "auto"
    trust_remote_code: TrustRemoteCode = False
    progress: Progress = SILENT
