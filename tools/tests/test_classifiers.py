"""Tests of classifiers with their own labels, valid and rejected."""

import unittest

from tests.support import ROOT, change_json, manifest_of, random_model, run


def source(name: str, shape: str, labels: tuple[str, ...], problem: str | None = None):
    """Returns a Hugging Face folder with random weights and these labels."""
    folder = ROOT / name
    random_model.write_model(shape, folder, labels=labels, problem=problem)
    return folder


class Classifiers(unittest.TestCase):
    """Classifiers are distinguished from NLI models by their labels."""

    def test_each_family_is_made_with_vectors_of_single_texts(self):
        """The manifest's kind, classes and vectors; every graph is verified when it is made."""
        for shape, labels in [
            ("tiny-bart", ("joy", "anger")),
            ("tiny-bert", ("one", "two", "three", "four")),
            ("tiny-roberta", ("only",)),
            ("tiny-deberta", ("a", "b")),
        ]:
            with self.subTest(shape):
                out = ROOT / f"made-labels-{shape}"
                code, said = run(source(f"labels-{shape}", shape, labels), out, "--graphs", "cpu-fp32,cpu-int8")
                self.assertEqual(code, 0, said)
                manifest = manifest_of(out)
                self.assertEqual((manifest["kind"], manifest["classes"]), ("classifier", list(labels)))
                for vector in manifest["vectors"]:
                    self.assertNotIn("hypothesis", vector)
                    self.assertEqual(len(vector["logits"]), len(labels))

    def test_unnamed_labels_need_kind_classifier(self):
        """Default names may belong to an NLI model; a regression has one class, which needs no name."""
        folder = source("labels-unnamed", "tiny-bert", ("LABEL_0", "LABEL_1"))
        code, said = run(folder, ROOT / "made-unnamed", "--graphs", "cpu-fp32")
        self.assertEqual(code, 2)
        self.assertIn("--kind classifier", said)
        code, said = run(folder, ROOT / "made-unnamed", "--graphs", "cpu-fp32", "--kind", "classifier")
        self.assertEqual(code, 0, said)
        folder = source("labels-quality", "tiny-bert", ("LABEL_0",), "regression")
        code, said = run(folder, ROOT / "made-quality", "--graphs", "cpu-fp32")
        self.assertEqual(code, 0, said)
        self.assertEqual(manifest_of(ROOT / "made-quality")["kind"], "classifier")

    def test_indistinguishable_labels_are_rejected(self):
        """A gap in the numbers, one name for two classes, and more classes than weights."""
        for name, fields, words in [
            ("gap", {"id2label": {"0": "a", "2": "b"}, "label2id": None}, "without a gap"),
            ("twice", {"id2label": {"0": "a", "1": "a"}, "label2id": None}, "the same name"),
            ("more", {"id2label": {"0": "a", "1": "b", "2": "c"}, "label2id": None}, "do not have the shape"),
        ]:
            with self.subTest(name):
                folder = source(f"labels-{name}", "tiny-bert", ("a", "b"))
                change_json(folder / "config.json", **fields)
                code, said = run(folder, ROOT / f"made-{name}", "--graphs", "cpu-fp32")
                self.assertEqual(code, 2, said)
                self.assertIn(words, said)


if __name__ == "__main__":
    unittest.main()
