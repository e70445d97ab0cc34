"""A gate in CI: the configuration file and the pipeline of a project."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping
from pathlib import Path

from consilience.core.errors import OTHER_OUT, ConsilienceError
from consilience.files.write import make_folder, write_whole
from consilience.gating.rules import parse_rules
from consilience.kinds import inquiries_of, kind_of
from consilience.kinds.facts import Facts
from consilience.options.probe import ProbeOptions, at_url
from consilience.options.runs import InitOptions
from consilience.report.export import Lines

FILES = {"github": ".github/workflows/consistency.yml", "gitlab": ".gitlab-ci.yml"}
"""Where a pipeline is, in the folder of a project."""

CONFIGURATION = "consilience.toml"

USUAL_RULE = "consistency >= 0.8"

KEY = "OPENAI_API_KEY"


def init(options: InitOptions) -> Lines:
    """Write the configuration and the pipeline of a project, and say what is left to do."""
    suite = options.suite or _asked("Suite, such as questions.csv")
    model = options.model or _asked("Model: its name at the provider, a Hub id or a folder")
    is_told = options.base_url is not None or options.model is not None
    url = options.base_url if is_told else _asked("URL of the provider; none: the job loads it", "")
    rules = options.rule or [_asked("Rule", USUAL_RULE)]
    parse_rules(rules)
    asked = _probe_table(suite, model, url, options.api_key_env or KEY)
    key = str(asked.get("api-key-env", KEY))
    template = Path(__file__).with_name(f"{options.ci}.yml").read_text(encoding="utf-8")
    texts = {
        options.into / CONFIGURATION: _toml({"probe": asked, "gate": {"rule": list(rules)}}),
        options.into / FILES[options.ci]: template.replace("@KEY@", key),
    }
    for path in texts:
        if path.exists():
            raise ConsilienceError(
                "a file", where=str(path), todo=f"{OTHER_OUT}, or remove it.", kind="occupied"
            )
    for path, text in texts.items():
        make_folder(path.parent)
        write_whole(path, text.encode())
    return Lines(
        {"files": [str(path) for path in texts]},
        *(f"Written: {path}" for path in texts),
        "Wheel:   add the wheel of consilience to the repository (docs/install.md)",
        *([f"Key:     store it as the secret {key}"] if "api-key-env" in asked else []),
        f"Try:     consilience probe --config {options.into / CONFIGURATION} --dry-run",
    )


def _probe_table(suite: str, model: str, url: str | None, key: str) -> Mapping[str, object]:
    """The defaults of ``probe``; behind a URL the model writes, with a budget of requests."""
    if not url:
        return {"suite": suite, "model": model}
    as_questions = 3 if kind_of(suite) is Facts else None
    named = ProbeOptions(suite=suite, as_questions=as_questions, generate=True)
    prompts = sum(sum(inquiry.groups.values()) for inquiry in inquiries_of(named))
    return {
        "suite": suite,
        "model": at_url(model, url),
        "base-url": url,
        **({"api-key-env": key} if url.startswith("https:") else {}),
        **({"as-questions": as_questions} if as_questions else {}),
        "generate": True,
        "max-requests": 2 * prompts + 50,  # repeats for the noise floor are fewer than half
    }


def _asked(question: str, usual: str | None = None) -> str:
    """What is typed; without a terminal the usual answer, and an error where there is none."""
    if sys.stdin.isatty():
        import click

        return str(click.prompt(question, default=usual))
    if usual is None:
        name = re.split(r"\W", question)[0].lower()
        raise ConsilienceError(
            f"no --{name}", expected="it as an option, or a terminal to ask on", kind="usage"
        )
    return usual


def _toml(tables: Mapping[str, Mapping[str, object]]) -> str:
    lines = ["# Name it with --config: it says where the key is sent."]
    for table, values in tables.items():
        lines += ["", f"[{table}]"]
        lines += [
            f"{key} = {json.dumps(value, ensure_ascii=False)}" for key, value in values.items()
        ]
    return "\n".join([*lines, ""])
