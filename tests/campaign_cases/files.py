"""The files that the campaign damages: bundled ones, runs, and tiny models."""

from __future__ import annotations

import gzip
import json
import os
import shutil
import zipfile
from pathlib import Path

from campaign_cases.child import command

DATA = Path(__file__).parents[1] / "data" / "campaign"
"""A suite, LAMA's layout, a graph, a task, its pairs, annotated sheets, typed tables, questions in
each format, answers to them, studies, templates and defaults (BASE: this folder's copy)."""


def prepare(base: Path) -> str:
    """Write the files that the cases damage."""
    shutil.copytree(DATA, base)
    suite = base / "suite"
    command("probe", "--model", "baseline:majority", "--suite", suite, "--out", base / "run")
    import polars as pl

    from consilience.runs.run import read_answers

    answers = read_answers(base / "run")
    answers.write_parquet(base / "answers.parquet")
    answers.write_csv(base / "answers.csv")
    (base / "answers.csv.gz").write_bytes(gzip.compress((base / "answers.csv").read_bytes()))
    pairs = [json.loads(line) for line in (base / "pairs.jsonl").read_text().splitlines()]
    pl.DataFrame(pairs).write_parquet(base / "pairs.parquet")
    command("probe", "--model", "baseline:random", "--suite", suite, "--out", base / "random")
    shutil.copytree(suite, base / "three")  # with three relations that can be trained
    relations = (suite / "relations.jsonl").read_text().replace("N-M", "N-1")
    (base / "three" / "relations.jsonl").write_text(relations)
    _prepare_questions(base)
    _prepare_models(base)
    return "prepared"


def _prepare_questions(base: Path) -> None:
    """Questions in each format, answers to them, and what says how they are asked."""
    import polars as pl

    pl.read_csv(base / "questions.csv").write_parquet(base / "questions.parquet")
    command("suite", "export", base / "questions.csv", "--format", "lm-eval", "--vary",
            "paraphrase=all", "--out", base / "task")  # fmt: skip
    docs = (base / "task" / "consilience_questions.jsonl").read_text().splitlines()
    logged = [{"doc_id": at, "doc": json.loads(line), "filtered_resps": [["-1.5", "False"]] * 3}
              for at, line in enumerate(docs)]  # fmt: skip
    (base / "samples_x.jsonl").write_text("\n".join(map(json.dumps, logged)))
    shutil.copy(DATA.parent / "promptfoo.json", base)
    for name in ("study.toml", "short.toml", "consilience.toml"):
        text = (base / name).read_text()
        (base / name).write_text(text.replace("BASE", str(base)))
    rows = map(json.loads, (base / "written.jsonl").read_text().splitlines())
    write_workbook(base / "answers.xlsx", list(rows))


def write_workbook(path: Path, rows: list[dict[str, str]]) -> None:
    """An Excel workbook of one sheet, with its texts in the cells."""
    cells = [list(rows[0]), *(list(row.values()) for row in rows)]
    sheet = "".join(
        f'<row r="{at}">' + "".join(
            f'<c r="{chr(65 + column)}{at}" t="inlineStr"><is><t>{text}</t></is></c>'
            for column, text in enumerate(row)
        ) + "</row>"
        for at, row in enumerate(cells, start=1)
    )  # fmt: skip
    main = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
    office = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
    package = "http://schemas.openxmlformats.org/package/2006/relationships"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as book:
        book.writestr(
            "_rels/.rels",
            f'<Relationships xmlns="{package}"><Relationship Id="r1" '
            f'Type="{office}/officeDocument" Target="xl/workbook.xml"/></Relationships>',
        )
        book.writestr(
            "xl/workbook.xml",
            f'<workbook xmlns="{main}" xmlns:r="{office}"><sheets>'
            '<sheet name="S" sheetId="1" r:id="r1"/></sheets></workbook>',
        )
        book.writestr(
            "xl/_rels/workbook.xml.rels",
            f'<Relationships xmlns="{package}"><Relationship Id="r1" '
            f'Type="{office}/worksheet" Target="worksheets/sheet1.xml"/></Relationships>',
        )
        book.writestr("xl/worksheets/sheet1.xml",
                      f'<worksheet xmlns="{main}"><sheetData>{sheet}</sheetData></worksheet>')  # fmt: skip


def _prepare_models(base: Path) -> None:
    """Tiny models of every kind that is read, runs and records of them."""
    from conftest import build_model
    from pair_builders import save_classifier
    from test_gguf import write_gguf

    os.environ["CONSILIENCE_CACHE"] = str(base / "cache")
    build_model("bert", base / "masked")
    build_model("gpt2", base / "causal")
    for seed in (0, 1):
        save_classifier(base / "seeds" / f"seed-{seed}" / "mrpc", seed=seed)
    shutil.copytree(base / "seeds" / "seed-0" / "mrpc", base / "classifier")
    command("probe", "--model", base / "seeds", "--suite", "mrpc", "--data", base / "pairs.jsonl",
            "--out", base / "perturbed")  # fmt: skip
    write_gguf(base / "tiny.gguf", base / "causal")
    probe_gguf(base, base / "gguf")


def probe_gguf(base: Path, place: Path) -> str:
    return command("probe", "--model", base / "tiny.gguf", "--suite", base / "suite", "--groups",
                   "capital", "--limit", 2, "--out", place)  # fmt: skip
