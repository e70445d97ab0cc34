"""A suite of BECEL's negational file of BoolQ, ``negational.tsv`` in the working folder.

Its columns are ``index, question, passage, label, question_neg, neg_label``.
"""

import csv
import json
from pathlib import Path

folder = Path("boolq-negational")
folder.mkdir(exist_ok=True)
questions, expectations = [], []
with Path("negational.tsv").open(encoding="utf-8", newline="") as file:
    for row in csv.DictReader(file, delimiter="\t"):
        item = row["index"]
        for name, text, label in (
            (item, row["question"], row["label"]),
            (f"{item}-neg", row["question_neg"], row["neg_label"]),
        ):
            questions.append(
                {
                    "item": name,
                    "context": row["passage"],
                    "question": text,
                    "options": ["no", "yes"],
                    "answer": int(label),
                }
            )
        both = {"item": item, "other_item": f"{item}-neg"}
        expectations.append({"kind": "implied", **both, "map": "yes -> no; no -> yes"})
for name, rows in (("questions", questions), ("expectations", expectations)):
    (folder / f"{name}.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
