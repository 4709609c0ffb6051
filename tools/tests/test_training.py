"""Tests of training on a few made-up posts: end to end, resuming, and rejected inputs."""

import contextlib
import csv
import io
import itertools
import json
import shutil
import tempfile
import unittest
from pathlib import Path
from unittest import mock

import numpy as np
import onnxruntime
import torch
from accelerate.state import AcceleratorState
from safetensors import SafetensorError
from safetensors.torch import load_file

import train
from tests.support import ROOT, change_json, copy_of, manifest_of, source_folder
from training.base import read_base
from training.fit import Fit, Plan, precision_of
from training.posts import Wishes, read_corpus
from training.report import Meter
from training.shipped import read_shipped
from training.text import post_text

SHIPPED = Path(__file__).resolve().parents[2] / "models" / "minilm-reddit-topics"
WORDS = {
    "food": ("soup", "bread", "garlic", "oven"),
    "travel": ("train", "lake", "hotel", "night"),
    "music": ("song", "band", "drum", "album"),
}


def posts(each: int = 12) -> list[dict]:
    """Returns posts as exported, whose labels depend on a few words."""
    rows = []
    for label, words in WORDS.items():
        for number in range(each):
            one, two = words[number % 4], words[(number + 1 + number // 4) % 4]
            scores = {f"score_{other}": 0.8 if other == label else 0.1 for other in WORDS}
            body = f"the {two} of day {number}" if number % 3 == 0 else ""
            row = {"fullname": f"t3_{label}{number}", "title": f"a {one} and {two} {number}", "selftext": body}
            rows.append(row | {"label": label} | scores)
    return rows


def written(rows: list[dict], ending: str = ".ndjson") -> Path:
    """Writes a file with these rows."""
    path = Path(tempfile.mkdtemp(dir=ROOT)) / f"posts{ending}"
    if ending == ".csv":
        with path.open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, rows[0].keys())
            writer.writeheader()
            writer.writerows(rows)
    else:
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def another_precision() -> None:
    """Resets accelerate, so that the next training run in this process can use a different precision."""
    AcceleratorState._reset_state(reset_partial_state=True)


def run(*words: object, base: Path | None = None) -> tuple[int, str, Path]:
    """Runs tools/train.py in this process; returns the exit code, stderr and OUT."""
    another_precision()
    out = Path(tempfile.mkdtemp(dir=ROOT)) / "out"
    said = io.StringIO()
    given = [str(word) for word in words]
    if "--base" not in given:
        given += ["--base", str(base or source_folder("tiny-bert"))]
    if "--graphs" not in given:
        given += ["--graphs", "cpu-fp32"]
    posts_path, *rest = given
    if "--out" in rest:
        place = rest.index("--out")
        out = Path(rest[place + 1])
        del rest[place : place + 2]
    with contextlib.redirect_stderr(said):
        code = train.main([posts_path, str(out), "--max-tokens", "32", *rest])
    return code, said.getvalue(), out


class Texts(unittest.TestCase):
    def test_a_post_reads_as_in_the_program(self):
        """The same as the doc tests of crates/core/src/reddit.rs."""
        body = "&#x200B;\n\nhttps://preview.redd.it/a1.png?width=640\n\n# Day 3\n\nIt \\*still\\* **smells**."
        self.assertEqual(post_text("Rye bread", body), "Rye bread\n\nDay 3\n\nIt *still* smells.")
        self.assertEqual(post_text("Rye bread", "[removed]"), "Rye bread")
        self.assertEqual(post_text("[deleted by user]", "[ Removed by Reddit ]"), "")


class TheWholeWay(unittest.TestCase):
    """From an export to a model folder."""

    def test_fine_tuning_leaves_a_model_folder_and_its_curves(self):
        """tools/model.py verifies each graph; the record has every epoch."""
        code, said, out = run(written(posts()), "--epochs", 2, "--batch", 8, "--soft", 0.5)
        self.assertEqual(code, 0, said)
        manifest = manifest_of(out)
        self.assertEqual((manifest["kind"], manifest["classes"]), ("classifier", ["food", "travel", "music"]))
        work = out.with_name("out.train")
        record = json.loads((work / "train.json").read_text())
        self.assertGreater(record["held_out"]["texts"], 0)
        with (work / "curves.csv").open() as file:
            self.assertEqual([row["epoch"] for row in csv.DictReader(file)], ["1.0", "2.0"])

    def test_a_linear_head_on_the_default_model_learns(self):
        """Frozen vectors suffice for these posts; the classes are named by the words in the pipeline file."""
        pipeline = written([{}]).with_name("mine.toml")
        topics = [f'[[topic]]\nslug = "{slug}"\nlabel = "{slug} and more"\n' for slug in WORDS]
        pipeline.write_text("\n".join(topics))
        code, said, out = run(written(posts(), ".csv"), "--head-only", "--pipeline", pipeline, base=SHIPPED)
        self.assertEqual(code, 0, said)
        self.assertEqual(manifest_of(out)["classes"], ["food and more", "travel and more", "music and more"])
        record = json.loads((out.with_name("out.train") / "train.json").read_text())
        self.assertGreater(record["held_out"]["accuracy"], 0.8)

    def test_the_weights_read_back_match_the_graph(self):
        """The torch network returns the same vectors as the ONNX file."""
        ids = np.array([[101, 7592, 2088, 102]])
        session = onnxruntime.InferenceSession(SHIPPED / "model.onnx", providers=["CPUExecutionProvider"])
        feed = {"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": np.zeros_like(ids)}
        (expected,) = session.run(None, feed)
        with torch.no_grad():
            mean = read_shipped(SHIPPED)(input_ids=torch.tensor(ids)).last_hidden_state.mean(1)
        np.testing.assert_allclose((mean / mean.norm(dim=-1)).numpy(), expected, atol=1e-5)

    def test_gold_counts_more_than_a_label_and_contradictions_are_left_out(self):
        """A post with conflicting gold answers keeps the exported label."""
        rows = posts()
        gold = written([{"id": "t3_food0", "label": "music"}, {"id": "t3_food1", "label": "music"}], ".csv")
        with gold.open("a") as file:
            file.write("t3_food1,travel\n")
        corpus = read_corpus(written(rows), Wishes(gold=gold, soft=True, both_forms=False))
        labels = {row.name: corpus.labels[row.label] for row in corpus.train + corpus.held_out}
        self.assertEqual((labels["t3_food0"], labels["t3_food1"]), ("music", "food"))
        self.assertTrue(any("contradict" in note for note in corpus.notes), corpus.notes)

    def test_a_post_that_fits_no_label_according_to_gold_is_not_trained_on(self):
        """A label rejected by an annotator is not a target."""
        rows = posts()
        gold = written([{"id": "t3_food0", "label": ""}, {"id": "t3_food1", "label": "music"}], ".csv")
        corpus = read_corpus(written(rows), Wishes(gold=gold, both_forms=False))
        names = {row.name for row in corpus.train + corpus.held_out}
        self.assertNotIn("t3_food0", names)
        self.assertIn("t3_food1", names)
        self.assertTrue(any("none of the labels fits" in note for note in corpus.notes), corpus.notes)

    def test_exported_scores_add_up_to_one(self):
        """They are targets of `--soft`."""
        corpus = read_corpus(written([row | {"score_food": 3.8} for row in posts()]), Wishes(soft=True))
        np.testing.assert_allclose(corpus.train[0].scores, [0.95, 0.025, 0.025], atol=1e-6)

    def test_equal_texts_are_on_one_side_in_each_export(self):
        """Otherwise, a title would be evaluated by a model that was trained on the same post with its body."""
        rows = posts(200)
        corpus = read_corpus(written(rows), Wishes(label_column="label"))
        parts = {"train": corpus.train, "validation": corpus.held_out}
        names = {part: {row.name for row in of_part} for part, of_part in parts.items()}
        self.assertFalse(names["train"] & names["validation"])
        self.assertLess(len(names["train"]), len(corpus.train))
        self.assertAlmostEqual(len(names["validation"]) / len(rows), 0.1, delta=0.04)
        changed = [row | {"fullname": f"t3_z{place}", "title": f" {row['title'].upper()}"} for place, row in enumerate(rows)]
        again = read_corpus(written(changed[::-1]), Wishes())
        whole = lambda corpus: {" ".join(row.text.lower().split()) for row in corpus.held_out}  # noqa: E731
        self.assertEqual(whole(corpus), whole(again))

    def test_the_test_part_is_kept_for_evaluation(self):
        """With labels of people only: a model must not be evaluated with the labels of another model."""
        rows = [row | {"topic": row["label"]} for row in posts(40)]
        corpus = read_corpus(written(rows), Wishes(label_column="topic"))
        used = {row.name for row in corpus.train + corpus.held_out}
        self.assertEqual(set(corpus.test), {row["fullname"] for row in rows} - used)
        self.assertTrue(corpus.test)
        self.assertEqual(read_corpus(written(rows), Wishes()).test, {})


class Measures(unittest.TestCase):
    """Optimisations that do not change a step's result."""

    def setUp(self):
        another_precision()

    def test_bf16_is_used_where_the_device_is_faster_in_it(self):
        """CPUs with bf16 instructions, an Intel CPU without AMX, a CPU without bf16, GPUs, and an explicit choice."""
        for on_gpu, known, wanted in [
            (False, {"cpu_name": "AMD EPYC", "avx512_bf16": True}, "bf16"),
            (False, {"cpu_name": "Intel Xeon", "avx512_bf16": True, "amx_bf16": True}, "bf16"),
            (False, {"cpu_name": "Intel Xeon", "avx512_bf16": True, "amx_bf16": False}, "no"),
            (False, {"avx512_f": True, "avx512_bf16": False}, "no"),
            (True, True, "bf16"),
            (True, False, "fp16"),
        ]:
            with (
                mock.patch("torch.cuda.is_available", return_value=on_gpu),
                mock.patch("torch.cuda.is_bf16_supported", return_value=known),
                mock.patch("torch.cpu.get_capabilities", return_value=known),
            ):
                self.assertEqual(precision_of("auto"), wanted)
                self.assertEqual((precision_of("fp32"), precision_of("bf16")), ("no", "bf16"))

    def test_bf16_learns_what_float32_learns(self):
        """Weights, gradients and optimizer are float32 in both; after training, so are the logits."""
        corpus = read_corpus(written(posts()), Wishes())
        base = read_base(SHIPPED)
        found = []
        for precision in ("no", "bf16"):
            model = base.classifier(corpus.labels, 1)
            plan = Plan(batch=8, epochs=1)
            another_precision()
            fit = Fit(model, base.tokenizer, corpus, plan, ROOT / "unused", precision, None, lambda _: None)
            with mock.patch.object(fit.accelerator, "clip_grad_norm_"):
                fit.once()
            moving = [weight for weight in fit.plain().parameters() if weight.requires_grad]
            sums = [state["exp_avg"] for state in fit.optimizer.state.values()]
            self.assertEqual({tensor.dtype for tensor in (*moving, *sums)}, {torch.float32})
            found.append(torch.cat([weight.grad.flatten() for weight in moving]))
            rounded = fit.logits()
            fit.take_best()
            exact = fit.logits()
            self.assertEqual(precision == "no", np.array_equal(rounded, exact))
            np.testing.assert_allclose(rounded, exact, atol=0.02)
        self.assertGreater(torch.nn.functional.cosine_similarity(*found, dim=0).item(), 0.99)

    def test_progress_says_what_is_left(self):
        """Loss, macro-F1, speed and remaining time, in one line."""
        said: list[str] = []
        with mock.patch("training.report.time.monotonic", side_effect=itertools.count(0, 31)):
            meter = Meter(10, 40, said.append)
            meter.macro_f1 = 0.75
            meter.after(20, 0.5, 1000)
        self.assertRegex(said[0], r"^step 20 of 40: loss 0\.500, macro-F1 0\.750, \d+ tokens/s, \d+ min left$")


class Stops(unittest.TestCase):
    """Checkpoints and resuming."""

    def setUp(self):
        another_precision()

    def test_a_resumed_run_gives_the_same_weights_to_the_bit(self):
        """Interrupted after the first epoch and resumed with a different random state."""
        for precision in ("fp32", "bf16"):
            with self.subTest(precision):
                self.goes_on(precision)

    def goes_on(self, precision: str) -> None:
        """Compares an interrupted and resumed run with an uninterrupted one."""
        path = written(posts())
        words = (path, "--epochs", 3, "--batch", 8, "--patience", 9, "--precision", precision)
        code, said, whole = run(*words)
        self.assertEqual(code, 0, said)
        out = Path(tempfile.mkdtemp(dir=ROOT)) / "out"
        save, saves = Fit.save, []

        def killed(fit: Fit) -> None:
            save(fit)
            saves.append(fit.progress.step)
            raise KeyboardInterrupt

        with mock.patch.object(Fit, "save", killed), self.assertRaises(KeyboardInterrupt):
            run(*words, "--out", out)
        self.assertEqual(len(saves), 1)
        torch.manual_seed(99)
        code, said, _ = run(*words, "--out", out, "--resume")
        self.assertEqual(code, 0, said)
        self.assertIn("resuming at step", said)
        first, second = (
            load_file(folder.with_name("out.train") / "hugging-face/model.safetensors")
            for folder in (whole, out)
        )
        for name, tensor in first.items():
            self.assertTrue(torch.equal(tensor, second[name]), name)

    def test_a_micro_batch_does_not_change_what_is_learned(self):
        """The gradient of a step does not depend on its micro-batches."""
        gradients = []
        for tokens in (16, 4096):
            torch.manual_seed(0)
            corpus = read_corpus(written(posts()), Wishes())
            base = read_base(source_folder("tiny-bert"))
            model = base.classifier(corpus.labels, 1)
            fit = Fit(model, base.tokenizer, corpus, Plan(batch=16), ROOT / "unused", "no", tokens, lambda _: None)
            with mock.patch.object(fit.accelerator, "clip_grad_norm_"):
                fit.once()
            gradients.append(
                {
                    name: weight.grad.clone()
                    for name, weight in fit.plain().named_parameters()
                    if weight.grad is not None
                }
            )
        for name, gradient in gradients[0].items():
            torch.testing.assert_close(gradient, gradients[1][name], atol=1e-5, rtol=1e-3)

    def test_a_nan_loss_stops_and_the_best_weights_are_kept(self):
        """Exit code 1, and the message names the step."""
        once, steps = Fit.loss_of, []

        def spoiled(fit: Fit, batch: list[int]) -> torch.Tensor:
            steps.append(fit.progress.step)
            return once(fit, batch) * (float("nan") if fit.progress.step >= 5 else 1.0)

        with mock.patch.object(Fit, "loss_of", spoiled):
            code, said, out = run(written(posts()), "--epochs", 4, "--batch", 8, "--patience", 9)
        self.assertEqual(code, 1)
        self.assertIn("the loss is nan at step 5", said)
        self.assertFalse(out.exists())
        self.assertTrue((out.with_name("out.train") / "run/best.pt").is_file())

    def test_a_full_disk_at_a_checkpoint_says_so(self):
        """No partial file is left."""
        with mock.patch("training.fit.torch.save", side_effect=OSError(28, "No space left on device")):
            code, said, out = run(written(posts()), "--batch", 8)
        self.assertEqual(code, 1)
        self.assertIn("No space left on device", said)
        self.assertIn("--resume", said)
        self.assertEqual(list(out.with_name("out.train").rglob("*.partial")), [])

    def test_a_full_disk_at_the_end_says_so(self):
        """Writing the best weights fails, but the checkpoint still contains them."""
        full = SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)")
        with mock.patch("transformers.modeling_utils.safe_save_file", side_effect=full):
            code, said, out = run(written(posts()), "--epochs", 1, "--batch", 8)
        self.assertEqual(code, 1, said)
        self.assertIn("No space left on device", said)
        self.assertIn("add --resume", said)
        self.assertFalse(out.exists())

    def test_a_checkpoint_from_something_else_is_refused(self):
        """Different settings, posts, model and precision."""
        path = written(posts())
        code, said, out = run(path, "--epochs", 1, "--batch", 8, "--precision", "bf16")
        self.assertEqual(code, 0, said)
        shutil.rmtree(out)
        for change, words in [
            ((path, "--epochs", 2, "--batch", 8), "different settings"),
            ((written(posts(13)), "--epochs", 1, "--batch", 8), "different posts"),
            ((path, "--epochs", 1, "--batch", 8, "--base", source_folder("tiny-roberta")), "a different model"),
            ((path, "--epochs", 1, "--batch", 8, "--precision", "fp32"), "different precision"),
        ]:
            with self.subTest(words):
                given = () if "--precision" in change else ("--precision", "bf16")
                code, said, _ = run(*change, *given, "--out", out, "--resume")
                self.assertEqual(code, 2, said)
                self.assertIn(words, said)


class Refusals(unittest.TestCase):
    """Each invalid input has a message and exit code 2."""

    def refused(self, *words: object, base: Path | None = None) -> str:
        """Runs with invalid input and returns the message."""
        code, said, out = run(*words, base=base)
        self.assertEqual(code, 2, said)
        self.assertFalse(out.exists())
        self.assertEqual(said.count("cannot train:"), 1, said)
        return said

    def test_posts_that_cannot_be_learned_from(self):
        """Too few posts, only one label, no posts."""
        few = [row for row in posts() if row["label"] != "food"] + posts()[:3]
        for rows, words in [
            (few, "the label `food` has 3 posts"),
            (posts()[:12], "all posts have the same label"),
            ([row | {"label": None} for row in posts()], "all posts have the same label, or none"),
            ([row | {"title": " ", "selftext": ""} for row in posts()], "all posts have the same label, or none"),
            ([{"x": 1}], "neither a `title` nor a `text` column"),
            ([row | {"label": [row["label"]]} for row in posts()], "row 1 of"),
            ([row | {"selftext": {}} for row in posts()], "has a dict in the column `selftext`"),
            ([], "has no posts"),
        ]:
            with self.subTest(words):
                changed = [{key: row[key] for key in row if not key.startswith("score_")} for row in rows]
                self.assertIn(words, self.refused(written(changed)))

    def test_labels_and_titles_may_be_numbers(self):
        """Other tools write such files."""
        number = {label: place for place, label in enumerate(WORDS)}
        rows = [row | {"label": number[row["label"]], "title": place} for place, row in enumerate(posts(40))]
        rows = [{key: row[key] for key in row if not key.startswith("score_")} for row in rows]
        corpus = read_corpus(written(rows), Wishes())
        self.assertEqual(corpus.labels, ["0", "1", "2"])

    def test_files_that_cannot_be_read(self):
        """Missing file, invalid JSON, unknown extension, a file that changes."""
        self.assertIn("does not exist", self.refused(ROOT / "nothing.csv"))
        path = written(posts())
        other = path.with_suffix(".txt")
        shutil.copyfile(path, other)
        self.assertIn("does not end in", self.refused(other))
        path.write_text(path.read_text() + "{half")
        self.assertIn("line 37 of", self.refused(path))
        growing = iter(["a", "b"])
        with mock.patch("training.posts.digest_of", lambda _: next(growing)):
            self.assertIn("changed while it was read", self.refused(written(posts())))

    def test_arguments_that_cannot_be_meant(self):
        """The error comes before training."""
        path = written(posts())
        for words, said in [
            (("--soft", 2), "--soft is 2.0: set it to 0 to 1"),
            (("--soft", 0.5, "--head-only", "--base", SHIPPED), "learn from labels alone"),
            (("--graphs", "tpu"), "`tpu` is not a graph"),
            (("--label-column", "mood"), "has no column `mood`"),
            (("--head-only",), "--head-only needs an embedding model"),
            (("--precision", "fp16"), "--precision fp16 needs a GPU"),
            (("--base", ROOT / "nothing"), "has no `config.json`"),
        ]:
            with self.subTest(said):
                self.assertIn(said, self.refused(path, *words))
        bare = [{key: row[key] for key in row if not key.startswith("score_")} for row in posts()]
        self.assertIn("cannot teach", self.refused(written(bare), "--soft", 0.5))

    def test_a_base_without_a_fast_tokenizer(self):
        """Also a base of an unknown family."""
        folder = copy_of("tiny-bert")
        (folder / "tokenizer.json").unlink()
        self.assertIn("no `tokenizer.json`", self.refused(written(posts()), base=folder))
        folder = copy_of("tiny-bert")
        change_json(folder / "config.json", model_type="rnn")
        self.assertIn("`model_type` is 'rnn'", self.refused(written(posts()), base=folder))


if __name__ == "__main__":
    unittest.main()
