"""``probe`` with sentence pairs: runs, resuming, labels, models that write, bad input."""

import hashlib
import json
import re
from functools import partial

import numpy as np
import polars as pl
import pytest
import torch
import transformers

from checks import output, refusal
from conftest import SENTENCES, cases
from consilience.core.schemas import ANSWERS_SCHEMA
from consilience.results.reporting import report
from consilience.runs.run import Run, read_answers
from consilience.suites.pairs import TASKS, t5_original
from pair_builders import (
    FORMS,
    MRPC,
    PAIRS,
    SAME,
    changed_in,
    comparable,
    forms_of,
    measured,
    metrics_of,
    row_of,
    save_classifier,
    stamps,
    write_pairs,
)


@pytest.fixture
def perturb(consilience, tmp_path):
    """``perturb(model, "--json")``: the command on MRPC's eight pairs into ``run``."""
    data = write_pairs(tmp_path / "pairs.jsonl")

    def run(model, *options, task="mrpc", data=data, out="run"):
        return consilience(
            "probe", "--model", model, "--suite", task, "--data", data, "--out", tmp_path / out, *options
        )  # fmt: skip

    return run


def test_a_run(consilience, classifier, perturb, tmp_path):
    model = classifier("llama", SAME)
    status, out, err = perturb(model)
    assert status == 0
    folder = tmp_path / "run"
    assert {path.name for path in folder.iterdir()} == {
        "run.json", "answers", "queries.parquet", "metrics.csv",
    }  # fmt: skip
    record = json.loads((folder / "run.json").read_text())
    assert (record["settings"]["kind"], record["settings"]["suite"]) == ("pairs", "mrpc")
    assert record["settings"]["perturbations"] == ["reverse", "signal"]
    assert record["settings"]["task"]["indicators"] == ["Sentence1", "Sentence2"]
    assert record["finished"]
    answers = pl.read_parquet(folder / "answers" / "0.parquet")
    assert (dict(answers.schema), answers["variant"].to_list()) == (ANSWERS_SCHEMA, list(FORMS) * 8)
    assert answers["item"].to_list() == [str(at) for at in range(8) for _ in FORMS]
    assert answers["gold"].to_list() == [SAME[at % 2] for at in range(8) for _ in FORMS]
    assert set(answers["n_candidates"]) == {2}
    expected = measured(answers, SAME, positive=SAME[-1])
    assert comparable(metrics_of(folder)) == comparable(expected)
    said = answers["answer"].to_numpy().reshape(8, 3)
    kept = said[:, 1:] == said[:, :1]
    for at, form in enumerate(FORMS[1:]):
        assert row_of(metrics_of(folder), "consistency", form)["value"] == kept[:, at].mean()
    rows = changed_in(folder)
    assert len(rows) == (~kept).sum() > 0
    margins = [row["margin"] for row in rows]
    assert margins == sorted(margins, reverse=True)
    assert {(row["item"], row["perturbation"]) for row in rows} == {
        (str(item), FORMS[1 + form]) for item, form in np.argwhere(~kept)
    }
    for text in ("Accuracy", "Consistency C_R", "Consistency C_S", "Report: "):
        assert text in out
    _, out, _ = consilience("score", tmp_path / "run", "--by", "form")
    for text in ("original", "reverse", "signal"):
        assert text in out
    assert "asking: 24 queries in " in err


def test_a_folder_with_brackets_in_its_name(classifier, perturb, tmp_path):
    """They are no pattern of file names: what is there is found."""
    model, data = classifier("bert", SAME), tmp_path / "pairs[1].parquet"
    pl.DataFrame(
        {"sentence1": ["Rome", "Oslo"], "sentence2": ["Oslo", "Oslo"], "label": [0, 1]}
    ).write_parquet(data)
    assert perturb(model, data=data, out="run[1]")[0] == 0
    before = stamps(tmp_path / "run[1]")
    status, _, err = perturb(model, data=data, out="run[1]")
    assert (status, "6/6" in err.replace(" ", "")) == (0, False)
    assert (stamps(tmp_path / "run[1]"), read_answers(tmp_path / "run[1]").height) == (before, 6)


@pytest.fixture(scope="module")
def finetuned(tmp_path_factory):
    """A folder as finetune leaves it: seed-N/TASK."""
    folder = tmp_path_factory.mktemp("finetuned")
    for seed in range(2):
        save_classifier(folder / f"seed-{seed}" / "mrpc", seed=2 * seed)
    return folder


def test_a_seed_that_finetune_wrote_is_a_run(finetuned, perturb, consilience, tmp_path):
    """Named by its folder, or by that of its task; another seed in its folder is another run."""
    for part in ("seed-1", "seed-1/mrpc"):
        assert perturb(finetuned / part, out=part.replace("/", "-"))[0] == 0
    one, two = (metrics_of(tmp_path / name) for name in ("seed-1", "seed-1-mrpc"))
    assert comparable(one) == comparable(two)
    status, _, err = perturb(finetuned / "seed-0", out="seed-1")
    assert (status, "another run: its model" in err) == (2, True)
    err = refusal(consilience, "analyze", "patterns", tmp_path / "seed-1")
    assert "a run of sentence pairs; expected a run of facts." in " ".join(err.split())


def test_halves_and_samples(classifier, perturb, tmp_path):
    """Two halves are all pairs, each once; a sample is some, the same for a seed."""
    model, items = classifier("bert", SAME), {}
    for name, options in (
        ("1", ()), ("2", ()), ("few", ("--limit", 3)),
        ("again", ("--limit", 3)), ("seed", ("--limit", 3, "--seed", 1)), ("more", ("--limit", 99)),
    ):  # fmt: skip
        data = tmp_path / ("pairs.jsonl" + f"#{name}" * (name in "12"))
        assert perturb(model, *options, data=data, out=name)[0] == 0
        items[name] = read_answers(tmp_path / name)["item"].unique().sort().to_list()
    assert sorted(items["1"] + items["2"]) == [str(at) for at in range(8)] == items["more"]
    assert (len(items["1"]), len(items["few"])) == (4, 3)
    assert items["few"] == items["again"] != items["seed"]


def test_a_model_is_asked_with_the_indicators_of_its_training(perturb, tmp_path):
    """Those that finetune left beside the model."""
    model = save_classifier(tmp_path / "model", "llama", seed=3)
    beside = {"joined": "string", "pool": "mean", "indicators": ["Left", "Right"]}
    (model / "consilience.json").write_text(json.dumps(beside))
    assert perturb(model)[0] == 0
    texts = [row["original_1"] for row in changed_in(tmp_path / "run")]
    assert texts and all(text.startswith("Left: ") for text in texts)
    asked = json.loads((tmp_path / "run" / "run.json").read_text())["settings"]["model"]
    assert (asked["joined"], asked["pool"]) == ("string", "mean")


def answers_in(folder):
    return read_answers(folder).sort("item", "variant_index")["answer"].to_list()


@pytest.mark.parametrize(("name", "expected"), [
    ("majority", {"not_equivalent"}), ("constant", {"not_equivalent"}), ("random", {*SAME}),
])  # fmt: skip
def test_baselines_of_sentence_pairs(name, expected, perturb, tmp_path):
    """Of the eight pairs five are not equivalent; only the draw for each text varies."""
    data = write_pairs(tmp_path / "some.jsonl")
    lines = data.read_text().splitlines(keepends=True)
    data.write_text("".join(lines[at] for at in (0, 1, 2, 4, 6)))
    assert perturb(f"baseline:{name}", data=data)[0] == 0
    assert set(answers_in(tmp_path / "run")) == expected
    overall = metrics_of(tmp_path / "run").filter(kind="whole")
    values = dict(overall.select("metric", "value").iter_rows())
    right = 0.8 if name != "random" else None
    assert right is None or (values["accuracy"], values["consistency"]) == (right, 1)
    status, _, err = perturb("baseline:oracle", out="other")
    assert status == 2
    assert "no baseline 'oracle' for sentence pairs" in err


@pytest.fixture
def bad(tmp_path, classifier, model_folder, finetuned):
    return {
        "good": classifier("bert", SAME),
        "unnamed": classifier("bert", SAME, named=False),
        "three": classifier("bert", TASKS["mnli"].labels),
        "one more": classifier("bert", (*SAME, "other")),
        "seeds": finetuned,
        "encoder": model_folder("bert"),
        "t5": model_folder("t5"),
        "llama": model_folder("llama"),
        "gpt2": model_folder("gpt2"),
        "packaged": "packaged:smollm2",
        "majority": "baseline:majority",
        "no column": write_pairs(tmp_path / "column.jsonl", sentence2=None),
        "odd label": write_pairs(tmp_path / "label.jsonl", label="perhaps"),
        "no label": write_pairs(tmp_path / "unlabelled.jsonl", label=-1),
        "none": tmp_path / "none.jsonl",
    }


@pytest.mark.parametrize("case", cases("probe_pairs_bad"), ids=lambda case: case["message"][:70])
def test_bad_input_is_one_message_and_status_2(case, bad, perturb, tmp_path):
    data = {"data": bad[case["data"]]} if "data" in case else {}
    model, task = bad[case.get("model", "good")], case.get("task", "mrpc")
    status, out, err = perturb(model, *case.get("options", ()), task=task, **data)
    message = " ".join(re.sub("[│╭╮╰╯─]", " ", err).split())
    assert (status, out) == (2, "")
    assert case["message"] in message and case["todo"] in message
    assert "Traceback" not in err and len(re.findall("error", err, re.IGNORECASE)) == 1
    assert not (tmp_path / "run" / "metrics.csv").exists()


@pytest.fixture(scope="module")
def taught(tmp_path_factory):
    """A tiny T5 that was taught what to write of MRPC's eight pairs.

    The original: the gold. REVERSE: the gold but for the last two, the other label. SIGNAL: no
    label.
    """
    words = dict.fromkeys(["mrpc", *SAME, "sentence1:", "sentence2:", "[sentence1]", "[sentence2]",
                           *(word for each in SENTENCES for word in each.split())])  # fmt: skip
    pieces = [("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0), ("▁", -6.0)]
    pieces += [(f"▁{word}", -1.0) for word in words]
    tokenizer = transformers.T5Tokenizer(vocab=pieces, extra_ids=3)
    config = transformers.T5Config(
        vocab_size=len(tokenizer), d_model=32, d_kv=8, d_ff=64, num_layers=1, num_heads=4,
        decoder_start_token_id=0, dropout_rate=0.0,
    )  # fmt: skip
    torch.manual_seed(0)
    model = transformers.T5ForConditionalGeneration(config)
    forms = forms_of(first=partial(t5_original, task=MRPC))
    prompts = ["mrpc " + " ".join(segment.text for segment in form) for form in forms]
    targets = []
    for at, pair in enumerate(PAIRS):
        turned = pair.label if at < 6 else SAME[1 - at % 2]
        targets += [pair.label, turned, "Oslo" if at == 0 else "<extra_id_0> Paris"]
    inputs = tokenizer(prompts, return_tensors="pt", padding=True)
    labels = tokenizer(targets, return_tensors="pt", padding=True).input_ids
    labels = labels.masked_fill(labels == tokenizer.pad_token_id, -100)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for _ in range(300):
        loss = model(**inputs, labels=labels).loss
        if loss < 0.01:
            break
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert loss < 0.01
    folder = tmp_path_factory.mktemp("taught")
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def test_labels_that_a_model_writes(consilience, taught, perturb, tmp_path):
    """Written: all right, C_R 6 of 8, C_S 0 as no label is said. Chosen: one label or the other."""
    out = output(perturb, taught, "--generate")
    metrics = metrics_of(tmp_path / "run")
    assert metrics["group"].unique(maintain_order=True).to_list() == ["mrpc", "mrpc-generated"]
    picked, said = (metrics.filter(pl.col("group") == each) for each in ("mrpc", "mrpc-generated"))
    for found in (picked, said):
        assert row_of(found, "accuracy")["value"] == row_of(found, "f1")["value"] == 1
        assert row_of(found, "consistency", "reverse")["value"] == 6 / 8
        corrected = row_of(found, "corrected_consistency", "reverse")["value"]
        assert corrected == pytest.approx((6 / 8 - 13 / 28) / (1 - 13 / 28))
    assert "no_option" not in set(picked["metric"])
    assert row_of(said, "no_option")["value"] == row_of(said, "no_option", "reverse")["value"] == 0
    assert row_of(said, "no_option", "signal")["value"] == 1
    assert row_of(said, "consistency", "signal")["value"] == 0
    answers = read_answers(tmp_path / "run").filter(group="mrpc-generated")
    raw = answers.filter(pl.col("variant") == "signal")["answer"].to_list()
    assert raw == ["Oslo", *["<extra_id_0> Paris"] * 7]
    assert answers["logprob"].null_count() == 24
    labelled = read_answers(tmp_path / "run").filter(group="mrpc")
    assert (set(labelled["answer"]), labelled["text_logprob"].null_count()) == (set(SAME), 0)
    rows = [row for row in changed_in(tmp_path / "run") if row["group"] == "mrpc-generated"]
    assert sum(row["perturbation"] == "reverse" for row in rows) == 2
    assert sum(row["answer"] == "<extra_id_0> Paris" for row in rows) == 7
    assert "Accuracy (written)" in out
    assert perturb(taught, "--generate")[0] == 0
    assert "mrpc-generated" in consilience("score", tmp_path / "run", "--by", "form")[1]
    assert "label" in out
    before = stamps(tmp_path / "run")
    assert len(before) == 2
    assert perturb(taught, "--generate")[0] == 0
    assert stamps(tmp_path / "run") == before
    status, _, err = perturb(taught, "--generate", "--template", "{text}")
    assert (status, "another run: its model" in err) == (2, True)


def test_a_causal_model_that_writes(model_folder, perturb, tmp_path):
    """Nothing that it writes is a label, so nothing agrees; what it chooses is one of the labels."""
    options = (model_folder("llama"), "--generate", "--template", "{text}:", "--json")
    plan = json.loads(perturb(*options, "--dry-run")[1])["plan"]
    assert (plan["queries"], plan["timed"], plan["requests"]) == (48, 8, None)
    assert perturb(*options)[0] == 0
    said = metrics_of(tmp_path / "run").filter(pl.col("group") == "mrpc-generated")
    assert (row_of(said, "no_option")["value"], row_of(said, "consistency")["value"]) == (1, 0)
    model = json.loads((tmp_path / "run" / "run.json").read_text())["settings"]["model"]
    assert (model["template"], model["chat"], model["kind"]) == ("{text}:", False, "causal")
    run, keys = Run.open(tmp_path / "run"), ["group", "item", "variant", "gold"]
    assert {*run.answers.filter(group="mrpc")["answer"].drop_nulls()} <= {*SAME}
    assert run.queries.select(keys).equals(run.answers.select(keys))


@pytest.mark.parametrize("options", [[], ["--generate"]], ids=["classifier", "writer"])
def test_the_noise_floor_of_pairs(options, classifier, taught, perturb, tmp_path):
    """Of all 24 forms, also where the run has written before and keeps the scores of labels."""
    model = taught if options else classifier("bert", SAME)
    status, out, err = perturb(model, "--noise-floor", "256", *options)
    assert status == 0, err
    floor = pl.read_csv(tmp_path / "run" / "metrics.csv").filter(pl.col("metric") == "noise_floor")
    assert floor.select("kind", "n", "value").rows() == [("whole", 48 if options else 24, 0)]
    assert f"the model changed 0 of {48 if options else 24} answers" in out + err
    report([str(tmp_path / "run")])  # the noise floor is of no task
    assert "<h2>Cautions</h2>" in (tmp_path / "run" / "report.html").read_text("utf-8")


# ``probe --perturbations``: a user's functions.

MINE = """
from dataclasses import replace

def polite(form):
    return tuple(replace(part, sentence="Please: " + part.sentence) for part in form)
"""


@pytest.fixture
def mine(tmp_path):
    (path := tmp_path / "my_forms.py").write_text(MINE)
    return path


@pytest.fixture
def pairs(consilience, classifier, tmp_path):
    """``pairs("signal")``: probe MRPC's eight pairs."""
    data = write_pairs(tmp_path / "pairs.jsonl")

    def run(perturbations):
        return consilience("probe", "--model", classifier("bert"), "--suite", "mrpc", "--data", data,
                           "--perturbations", perturbations, "--out", "run")  # fmt: skip

    return run


def settings_of(folder):
    return json.loads((folder / "run.json").read_text())["settings"]


def test_a_function_of_a_file_is_asked_and_recorded(pairs, mine, tmp_path):
    """The run keeps the file's name and SHA-256; a changed file is another run."""
    spec = f"{mine}:polite"
    assert pairs(spec)[0] == 0
    settings = settings_of(tmp_path / "run")
    assert settings["perturbations"] == ["polite"]
    digest = hashlib.sha256(MINE.encode()).hexdigest()
    assert settings["perturbation_sources"] == {"polite": {"file": "my_forms.py", "sha256": digest}}
    assert row_of(metrics_of(tmp_path / "run"), "consistency", "polite")["n"] == 8
    assert set(read_answers(tmp_path / "run")["variant"]) == {"original", "polite"}
    texts = {row["text_1"] for row in changed_in(tmp_path / "run")}
    assert texts and all(text.startswith("Sentence1: Please: ") for text in texts)
    before = stamps(tmp_path / "run")
    assert pairs(spec)[0] == 0
    mine.write_text(MINE.replace("Please", "Kindly"))
    assert "this folder holds another run: its perturbation_sources " in refusal(pairs, spec)
    assert stamps(tmp_path / "run") == before


@pytest.mark.parametrize(("options", "message", "todo"), cases("probe_forms_bad"))
def test_options_of_the_other_kind_of_suite_are_refused(options, message, todo, consilience):
    command = ("probe", "--model", "baseline:majority", "--out", "run", "--suite", *options)
    err = refusal(consilience, *command)
    assert message in " ".join(err.split()) and todo in " ".join(err.split())
    assert err.count("error") == 1
