"""Tests of learned label vectors: training, what it leaves unchanged, and the model folder."""

import json
import re
import shutil
import tempfile
import unittest
from pathlib import Path
from unittest import mock

import numpy as np

from models import GraphError
from tests.support import ROOT, manifest_of, source_folder
from tests.test_training import SHIPPED, posts, run, written
from tests.test_training import WORDS as TOPICS
from training.embed import Embedder
from training.proof import write_proof
from training.vectors import DEFAULT, WORDS, Loss, Scales, choose_pull, learn, shares_of, unit
from training.words import read_labels, slug_of

SCALES = Scales(21.0, 23.5, 0.281)
PIPELINE = """
hypothesis_template = "All about {}."
[[topic]]
slug = "food"
label = "food & drink"
descriptions = " What people eat. "
[[topic]]
label = "travel"
descriptions = ["Trips.", " "]
[[topic]]
slug = "music"
label = "music"
"""


def made_up(count: int, noise: float = 0.9, seed: int = 1) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns vectors around three directions, their labels, and slightly shifted word vectors."""
    random = np.random.default_rng(seed)
    middle = unit(random.normal(size=(3, 24)))
    labels = np.arange(count) % 3
    vectors = unit(middle[labels] + noise * unit(random.normal(size=(count, 24)))).astype(np.float32)
    return vectors, labels, unit(middle + 0.9 * unit(random.normal(size=(3, 24))))


def share_right(vectors: np.ndarray, labels: np.ndarray, found: np.ndarray) -> float:
    """Returns the share of rows with the right label."""
    return float(((vectors @ found.T).argmax(1) == labels).mean())


def pipeline_file(text: str = PIPELINE) -> Path:
    """Writes a pipeline file and returns its path."""
    path = Path(tempfile.mkdtemp(dir=ROOT)) / "mine.toml"
    path.write_text(text, encoding="utf-8")
    return path


class Learning(unittest.TestCase):
    """Vectors in, vectors out."""

    def test_the_slope_is_the_slope_of_the_loss(self):
        """Otherwise, the minimizer would not find the minimum."""
        vectors, labels, start = made_up(30)
        loss = Loss(vectors, shares_of(labels, 3), start, SCALES, DEFAULT)
        _, slope = loss.at(start, loss.smooth)
        for place in ((0, 0), (2, 5)):
            moved = [start.copy(), start.copy()]
            moved[0][place] += 1e-3
            moved[1][place] -= 1e-3
            measured = (loss.at(moved[0], loss.smooth)[0] - loss.at(moved[1], loss.smooth)[0]) / 2e-3
            self.assertAlmostEqual(slope[place], measured, delta=1e-3 + 0.01 * abs(measured))

    def test_labels_are_learned_and_have_length_one(self):
        """More held-out rows are right than with the words alone; the result is reproducible."""
        vectors, labels, start = made_up(600, noise=1.6)
        found = learn(vectors[:300], labels[:300], start, SCALES)
        np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1, atol=1e-6)
        after, before = (share_right(vectors[300:], labels[300:], one) for one in (found, start))
        self.assertGreater(after, before + 0.03)
        again = learn(vectors[:300], labels[:300], start, SCALES)
        self.assertEqual(found.tobytes(), again.tobytes())

    def test_few_labels_change_the_words_little_and_none_change_nothing(self):
        """With a single row, no row can be held out."""
        vectors, labels, start = made_up(60)
        few = learn(vectors[:4], labels[:4], start, SCALES)
        self.assertGreater((few * start).sum(1).min(), 0.8)
        self.assertEqual(learn(vectors[:1], labels[:1], start, SCALES).tobytes(), start.astype(np.float32).tobytes())
        nothing = learn(vectors[:0], labels[:0], start, SCALES)
        self.assertEqual(nothing.tobytes(), start.astype(np.float32).tobytes())

    def test_the_pull_is_weaker_where_there_are_more_posts(self):
        """Cross-validation selects the pull."""
        vectors, labels, start = made_up(1200, noise=1.6)
        pulls = [
            choose_pull(
                vectors[:count], shares_of(labels[:count], 3), start, SCALES, np.arange(count), DEFAULT
            )
            for count in (12, 1200)
        ]
        self.assertLess(pulls[1], pulls[0])
        self.assertLess(pulls[1], WORDS)

    def test_what_is_not_a_number_is_refused(self):
        """Checked before training."""
        vectors, labels, start = made_up(9)
        vectors[3, 3] = np.nan
        with self.assertRaisesRegex(ValueError, "NaN"):
            learn(vectors, labels, start, SCALES)
        with self.assertRaisesRegex(ValueError, "from 0 to 2"):
            learn(vectors, labels + 1, start, SCALES)
        with self.assertRaisesRegex(ValueError, "do not fit"):
            learn(vectors[:5], labels, start, SCALES)



class Words(unittest.TestCase):
    """Label texts, as the program makes them."""

    def test_a_pipeline_file_is_read_as_the_program_reads_it(self):
        """The template once, descriptions trimmed, empty ones omitted, a slug made from the words."""
        food, travel, music = read_labels(pipeline_file())
        self.assertEqual((food.slug, food.words), ("food", "food & drink"))
        self.assertEqual(food.texts, ["All about food & drink.", "What people eat."])
        self.assertEqual((travel.slug, travel.texts), ("travel", ["All about travel.", "Trips."]))
        self.assertEqual(music.texts, ["All about music."])
        listed = read_labels(pipeline_file('labels = ["Food & cooking"]'))
        self.assertEqual(listed[0].slug, "food-and-cooking")
        self.assertEqual(listed[0].texts, ["This text is about Food & cooking."])

    def test_slugs_match_the_programs(self):
        """The cases of crates/core/src/labels/slug.rs."""
        source = (Path(__file__).resolve().parents[2] / "crates/core/src/labels/slug.rs").read_text(encoding="utf-8")
        cases = source[source.index("for (label, made) in [") :].split("] {")[0]
        pairs = re.findall(r'\(\s*"([^"]*)",\s*"([^"]*)",?\s*\)', cases)
        self.assertGreater(len(pairs), 9)
        for label, made in pairs:
            self.assertEqual(slug_of(label), made, label)


class Folder(unittest.TestCase):
    """`tools/train.py --keep-zero-shot`."""

    def test_the_folder_takes_any_labels_and_carries_the_vectors(self):
        """The graph equals the base's byte for byte; label_vectors.json contains each label's texts and a unit
        vector."""
        code, said, out = run(
            written(posts()), "--keep-zero-shot", "--pipeline", pipeline_file(), base=SHIPPED
        )
        self.assertEqual(code, 0, said)
        for name in ("model.onnx", "tokenizer.json", "LICENSE", "NOTICE"):
            self.assertEqual((out / name).read_bytes(), (SHIPPED / name).read_bytes(), name)
        config, base = (json.loads((folder / "config.json").read_text()) for folder in (out, SHIPPED))
        self.assertEqual(config["zero_shot"].pop("label_vectors"), "label_vectors.json")
        base["zero_shot"].pop("label_vectors", None)
        self.assertEqual(config, base)
        labels = json.loads((out / "label_vectors.json").read_text())["labels"]
        self.assertEqual([label["texts"] for label in labels], [label.texts for label in read_labels(pipeline_file())])
        for label in labels:
            self.assertAlmostEqual(sum(x * x for x in label["vector"]), 1, places=5)
        manifest = manifest_of(out)
        self.assertEqual((manifest["kind"], manifest["source"]), ("embedding", SHIPPED.name))
        self.assertEqual(set(manifest["files"]), {path.name for path in out.iterdir()} - {"manifest.toml"})
        self.assertEqual({table["file"] for table in manifest["graphs"].values()}, {"model.onnx"})
        one = Embedder(out).vectors([manifest["vectors"][0]["premise"]])
        np.testing.assert_allclose(one[0], manifest["vectors"][0]["logits"], atol=1e-4)
        record = json.loads((out.with_name("out.train") / "train.json").read_text())
        self.assertGreaterEqual(record["held_out"]["accuracy"], record["held_out_by_base"]["accuracy"])
        self.assertEqual([path.name for path in out.parent.iterdir() if path.name.startswith(".")], [])

    def test_a_label_with_few_posts_or_none_has_a_vector_too(self):
        """The program uses the vectors only if every label has one."""
        rows = [row for row in posts() if row["label"] != "music"] + posts()[-2:]
        words = ("--keep-zero-shot", "--pipeline", pipeline_file())
        code, said, out = run(written(rows), *words, base=SHIPPED)
        self.assertEqual(code, 0, said)
        self.assertEqual(len(json.loads((out / "label_vectors.json").read_text())["labels"]), 3)

    def test_what_it_refuses(self):
        """The message gives advice, and nothing is written."""
        path, pipeline = written(posts()), pipeline_file()
        twins = pipeline_file("".join(f'[[topic]]\nslug = "{slug}"\nlabel = "x"\n' for slug in TOPICS))
        few = pipeline_file('labels = ["food"]')
        for words, said in [
            (("--keep-zero-shot", "--pipeline", pipeline, "--base", source_folder("tiny-bert")), "an embedding model"),
            (("--keep-zero-shot",), "add --pipeline"),
            (("--keep-zero-shot", "--pipeline", twins), "have the same texts"),
            (("--keep-zero-shot", "--pipeline", few), "has no topic `travel`"),
        ]:
            with self.subTest(said):
                code, printed, out = run(path, *words, base=SHIPPED)
                self.assertEqual(code, 2, printed)
                self.assertIn(said, printed)
                self.assertFalse(out.exists())
        one = [row for row in posts() if row["label"] == "food"]
        code, printed, _ = run(written(one), "--keep-zero-shot", "--pipeline", pipeline, base=SHIPPED)
        self.assertEqual(code, 2, printed)
        self.assertIn("all posts have the same label", printed)

    def test_a_full_disk_leaves_nothing(self):
        """Exit code 1, and no folder."""
        with mock.patch("training.keep.shutil.copytree", side_effect=OSError(28, "No space left on device")):
            code, said, out = run(
                written(posts()), "--keep-zero-shot", "--pipeline", pipeline_file(), base=SHIPPED
            )
        self.assertEqual(code, 1)
        self.assertIn("No space left on device", said)
        self.assertFalse(out.exists())


class Manifest(unittest.TestCase):
    """Graphs named in an embedding folder's manifest, and folders without a manifest."""

    def test_a_graph_in_a_subfolder_has_no_manifest(self):
        """topicmill checks such a graph itself."""
        folder = Path(tempfile.mkdtemp(dir=ROOT)) / "model"
        shutil.copytree(SHIPPED, folder)
        (folder / "onnx").mkdir()
        (folder / "model.onnx").rename(folder / "onnx/model.onnx")
        self.assertIsNone(write_proof(folder, SHIPPED))
        self.assertFalse((folder / "manifest.toml").exists())

    def test_a_library_that_computes_something_else_is_noticed(self):
        """No manifest is written."""
        folder = Path(tempfile.mkdtemp(dir=ROOT)) / "model"
        shutil.copytree(SHIPPED, folder)
        real = Embedder.raw

        def off(self: Embedder, rows: list) -> np.ndarray:
            return real(self, rows) + (0.01 if len(rows) > 1 else 0)

        with mock.patch.object(Embedder, "raw", off), self.assertRaisesRegex(GraphError, "off the graph's own"):
            write_proof(folder, SHIPPED)
        self.assertFalse((folder / "manifest.toml").exists())


class Vectors(unittest.TestCase):
    """Vectors of texts."""

    def test_a_vector_does_not_depend_on_its_neighbours(self):
        """A text has the same vector in a batch as alone."""
        embedder = Embedder(SHIPPED)
        texts = ["a soup", "a night train along the lake " * 40, "[SEP] is text"]
        together = embedder.vectors(texts)
        alone = np.concatenate([embedder.vectors([text]) for text in texts])
        np.testing.assert_allclose(together, alone, atol=1e-5)

    def test_a_folder_that_is_not_an_embedding_model_is_refused(self):
        """The error names the file."""
        folder = Path(tempfile.mkdtemp(dir=ROOT)) / "model"
        shutil.copytree(SHIPPED, folder)
        (folder / "config.json").write_text("{}")
        from models import InputError

        with self.assertRaisesRegex(InputError, "cannot be read as an embedding model"):
            Embedder(folder)


if __name__ == "__main__":
    unittest.main()
