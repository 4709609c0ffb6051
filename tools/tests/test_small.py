"""Students that are smaller than their base: fewer layers, a bag of words, weights in few bits."""

import shutil
import tempfile
import tomllib
import unittest
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import torch
from models.errors import InputError
from models.packed import GROUP, packed
from models.source import read_tokenizer
from onnx import TensorProto, helper, numpy_helper
from sklearn.linear_model import LogisticRegression
from training.bag import counts_of, divided, rarity_of
from training.base import read_base
from training.mean import BagOfWords
from training.shipped import read_shipped
from training.small import round_embeddings, round_rows
from training.vocabulary import with_vocabulary

from tests.support import ROOT, change_json, manifest_of
from tests.test_training import SHIPPED, posts, run, written

STUDENT = ("--layers", 2, "--bag-of-words", "--small", "--epochs", 1, "--batch", 8)


def graph_with(weights: dict[str, np.ndarray]) -> onnx.ModelProto:
    """A graph whose outputs are its weights: as they are, times one."""
    nodes = [helper.make_node("Mul", [name, "one"], [f"{name}_out"]) for name in weights]
    tensors = [numpy_helper.from_array(array, name) for name, array in weights.items()]
    outputs = [
        helper.make_tensor_value_info(f"{name}_out", TensorProto.FLOAT, array.shape) for name, array in weights.items()
    ]
    tensors.append(numpy_helper.from_array(np.array(1, np.float32), "one"))
    graph = helper.make_graph(nodes, "weights", [], outputs, tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


class WeightsOnAGrid(unittest.TestCase):
    """What is rounded is stored in few bits, and nothing else is."""

    def weights(self) -> dict[str, np.ndarray]:
        """A matrix on a grid by rows, one by columns, an embedding by groups, and one on none."""
        numbers = np.random.default_rng(1)
        rows = torch.from_numpy(numbers.normal(size=(48, 64)).astype(np.float32))
        round_rows(rows)
        model = read_shipped(SHIPPED)
        round_embeddings(model)
        table = model.get_input_embeddings().weight.detach().numpy()[:500].copy()
        table[3] = 0
        free = numbers.normal(size=(48, 64)).astype(np.float32)
        return {"rows": rows.numpy(), "columns": np.ascontiguousarray(rows.numpy().T), "table": table, "free": free}

    def test_a_packed_graph_has_the_same_weights_in_fewer_bytes(self):
        """To the last bit but one: a scale is computed again from the largest weight of its row."""
        weights = self.weights()
        model = graph_with(weights)
        before = model.ByteSize()
        self.assertTrue(packed(model))
        onnx.checker.check_model(model)
        stored = {tensor.name: tensor for tensor in model.graph.initializer}
        self.assertNotIn("table", stored)
        self.assertEqual(stored["table/numbers"].dims, [500, weights["table"].shape[1] // 2])
        self.assertEqual(stored["free"].data_type, TensorProto.FLOAT)
        found = onnxruntime.InferenceSession(model.SerializeToString()).run(None, {})
        for (name, wanted), got in zip(weights.items(), found, strict=True):
            np.testing.assert_allclose(got, wanted, rtol=1e-6, atol=0, err_msg=name)
        self.assertLess(model.ByteSize(), before / 5)

    def test_weights_of_a_common_training_stay_as_they_are(self):
        """Small whole numbers by chance, a vector and half a group are no grid worth it."""
        free = np.random.default_rng(2).normal(size=(64, GROUP + 1)).astype(np.float32)
        model = graph_with({"free": free, "vector": np.ones(4096, np.float32), "thin": np.ones((4096, 1), np.float32)})
        self.assertFalse(packed(model))
        self.assertEqual(len(model.graph.initializer), 4)


class Words(unittest.TestCase):
    """The bag of words in torch is the linear model of scikit-learn."""

    def test_torch_adds_up_what_the_linear_model_learned(self):
        """Texts of unlike length, padded; token 0 is padding, token 9 is in one text only."""
        texts = [[1, 2, 3, 3], [1, 4], [2, 5, 3], [4, 5, 5, 9], [4, 1, 2], [5, 3]]
        target = [0, 1, 0, 1, 1, 0]
        counts = counts_of(texts, 12)
        rarity = rarity_of(counts, list("abcdef"), [0, 1])
        self.assertEqual([rarity[0], rarity[1], rarity[9]], [0, 0, 0])
        self.assertGreater(rarity[5], 1)
        # Of one post that is there whole and as a bare title, no token is in two posts.
        self.assertEqual(rarity_of(counts[3:], list("ddd"), [0])[5], 0)
        self.assertEqual(rarity_of(counts, list("abcddd"), [0])[9], 0)
        model = LogisticRegression(C=10).fit(divided(counts, rarity).multiply(rarity).tocsr(), target)
        bag = BagOfWords(12, 1)
        with torch.no_grad():
            bag.shares.weight.copy_(torch.from_numpy(model.coef_[0] * rarity)[:, None])
            bag.rarity.weight.copy_(torch.from_numpy(rarity)[:, None])
            width = max(map(len, texts))
            found = bag(torch.tensor([[*text, *[0] * (width - len(text))] for text in texts]))
        wanted = model.decision_function(divided(counts, rarity).multiply(rarity).tocsr()) - model.intercept_
        np.testing.assert_allclose(found[:, 0].numpy(), wanted, atol=1e-5)
        with torch.no_grad():
            np.testing.assert_array_equal(bag(torch.tensor([[0, 1, 9]])).numpy(), [[0]])


class Students(unittest.TestCase):
    """The whole way to a folder."""

    def test_a_student_is_small_and_its_graph_is_what_torch_says(self):
        """tools/model.py proves the graph against torch, so the bag and the rounding are in both."""
        code, said, out = run(written(posts(40)), *STUDENT, base=SHIPPED)
        self.assertEqual(code, 0, said)
        self.assertIn("a bag of words, which counts", said)
        manifest = manifest_of(out)
        self.assertEqual(list(manifest["graphs"]), ["cpu-fp32"])
        self.assertLess(manifest["graphs"]["cpu-fp32"]["error"], 1e-4)
        size = (out / "cpu-fp32.onnx").stat().st_size
        self.assertLess(size, 11_500_000, "30,522 embeddings in four bits and two layers in eight")

    def test_a_smaller_vocabulary_reads_the_texts_of_the_training_as_before(self):
        """Their tokens are kept, and a word without a token of its own is read in pieces."""
        code, said, out = run(written(posts(40)), "--head-only", "--vocabulary", 2500, base=SHIPPED)
        self.assertEqual(code, 0, said)
        self.assertEqual(manifest_of(out)["vocab_size"], 2500)
        before, after = read_tokenizer(SHIPPED), read_tokenizer(out)
        for row in posts(40):
            self.assertEqual(before.tokenize(row["title"]), after.tokenize(row["title"]))
        self.assertEqual(before.tokenize("rigorous"), ["rigorous"])
        pieces = after.tokenize("rigorous")
        self.assertEqual("".join(piece.removeprefix("##") for piece in pieces), "rigorous")
        encoded = after("a soup", truncation=True, max_length=8)["input_ids"]
        self.assertEqual(after.convert_ids_to_tokens(encoded), ["[CLS]", "a", "soup", "[SEP]"])
        code, said, _ = run(written(posts(40)), "--head-only", "--vocabulary", 20, base=SHIPPED)
        self.assertEqual(code, 2, said)
        self.assertIn("which the posts need, to 30522", said)

    def test_a_small_folder_may_have_other_graphs_too(self):
        """The quantizer reads the graph as it was before it was packed; CUDA has a kernel for each node of the bag."""
        given = ("--head-only", "--bag-of-words", "--small", "--layers", 1, "--graphs", "cpu-fp32,cpu-int8,cuda-fp16")
        code, said, out = run(written(posts(40)), *given, base=SHIPPED)
        self.assertEqual(code, 0, said)
        kinds = {node.op_type for node in onnx.load(out / "cpu-int8.onnx").graph.node}
        self.assertIn("MatMulInteger", kinds)
        self.assertEqual(tomllib.loads((out / "manifest.toml").read_text())["graphs"]["cuda-fp16"]["host_ops"], [])

    def test_a_stopped_student_goes_on_to_the_same_weights(self):
        """Layers and rounding are part of what a checkpoint is of."""
        rows = written(posts(40))
        code, said, out = run(rows, *STUDENT, base=SHIPPED)
        self.assertEqual(code, 0, said)
        other = out.with_name("other")
        work = out.with_name("out.train")
        code, said, _ = run(rows, *STUDENT, "--resume", "--work", work, "--out", other, base=SHIPPED)
        self.assertEqual(code, 0, said)
        self.assertEqual((out / "cpu-fp32.onnx").read_bytes(), (other / "cpu-fp32.onnx").read_bytes())
        wordy = [word for word in STUDENT if word != "--small"]
        code, said, _ = run(rows, *wordy, "--resume", "--work", work, "--out", out.with_name("third"), base=SHIPPED)
        self.assertEqual(code, 2, said)
        self.assertIn("other settings", said)

    def test_layers_that_are_held_go_with_a_bag_of_words(self):
        """The texts held out are judged by the whole model, not from what the layers gave before they were rounded."""
        code, said, out = run(written(posts(40)), *STUDENT, "--freeze-layers", 1, base=SHIPPED)
        self.assertEqual(code, 0, said)
        self.assertIn("a bag of words, which counts", said)

    def test_a_bag_is_where_the_model_is(self):
        """On a GPU, too."""
        model = read_base(SHIPPED).classifier(["a", "b"], 1, 1).to("meta")
        model.add_words(torch.zeros((model.config.vocab_size, 2)), torch.zeros(model.config.vocab_size))
        self.assertEqual(model.words.shares.weight.device, model.classifier.weight.device)

    def test_a_tokenizer_that_cannot_be_numbered_anew_is_refused(self):
        """Ids of special tokens stand in more places than one."""
        for change in (
            {"post_processor": {"type": "BertProcessing", "sep": ["[SEP]", 102], "cls": ["[CLS]", 101]}},
            {"added_tokens": [{"id": 30522, "content": "[NEW]", "special": True}]},
        ):
            with self.subTest(change=change):
                base = Path(tempfile.mkdtemp(dir=ROOT))
                shutil.copyfile(SHIPPED / "tokenizer.json", base / "tokenizer.json")
                change_json(base / "tokenizer.json", **change)
                with self.assertRaisesRegex(InputError, "anew"):
                    with_vocabulary(replace(read_base(SHIPPED), folder=base), [[5]], 9000, base / "new")

    def test_what_cannot_be_is_refused(self):
        """Before anything is read or trained."""
        for given, why in (
            (("--layers", 7), "the base has 6"),
            (("--layers", 0), "--layers is 0"),
            (("--small", "--train-embeddings"), "leave out --train-embeddings"),
            (("--bag-of-words", "--keep-zero-shot"), "leave out --keep-zero-shot"),
            (("--layers", 2, "--keep-zero-shot"), "leave out --keep-zero-shot"),
            (("--bag-of-words", "--soft", 1), "lower --soft"),
        ):
            with self.subTest(given=given):
                code, said, out = run(written(posts()), *given, base=SHIPPED)
                self.assertEqual(code, 2, said)
                self.assertIn(why, said)
                self.assertFalse(out.exists())
        code, said, _ = run(written(posts()), "--bag-of-words")
        self.assertEqual(code, 2, said)
        self.assertIn("works with the model that ships as a base", said)


if __name__ == "__main__":
    unittest.main()
