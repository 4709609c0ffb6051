"""Tests of rejected models: wrong graphs (exit code 1) and unusable models (exit code 2)."""

import json
import tempfile
import unittest
from collections.abc import Callable
from pathlib import Path
from unittest import mock

import numpy as np
import torch
from onnxruntime.transformers.optimizer import optimize_model
from safetensors.torch import load_file, save_file

from models import GraphError, bart
from models.export import export_onnx
from models.source import read_source
from models.verify import proof_of, verify
from tests.support import (
    ROOT,
    change_json,
    copy_of,
    drop_weights,
    halve,
    manifest_of,
    model_folder,
    remove,
    run,
    source_folder,
)


class WrongGraphs(unittest.TestCase):
    """A wrong graph is never written to the output."""

    def test_the_stock_optimizer_s_fusion_of_bart_is_refused(self):
        """With the wrong model type, BERT instead of BART, the optimizer fuses some attention wrongly and silently."""
        source = read_source(source_folder("tiny-bart"))
        proof = proof_of(source)
        pair = source.pair("The home team scored twice.", "This text is about sports.")
        ids = torch.tensor([pair.ids, pair.ids])
        with tempfile.TemporaryDirectory(dir=ROOT) as scratch:
            exported, fused = Path(scratch) / "plain.onnx", Path(scratch) / "fused.onnx"
            export_onnx(source.model, {"input_ids": ids, "attention_mask": torch.ones_like(ids)}, exported)
            self.assertLess(verify(source, exported, proof, 1e-4), 1e-4)

            heads, width = source.config.encoder_attention_heads, source.config.d_model
            optimizer = optimize_model(str(exported), model_type="bert", num_heads=heads, hidden_size=width)
            self.assertGreater(optimizer.get_fused_operator_statistics()["Attention"], 0)
            optimizer.save_model_to_file(str(fused))
            with self.assertRaisesRegex(GraphError, "fused is wrong: its logits are .* off torch's"):
                verify(source, fused, proof, 1e-4)

    def test_a_wrong_graph_leaves_nothing_behind(self):
        """Here the decoder attends to later tokens."""
        out = ROOT / "never"
        before = sorted(ROOT.iterdir())
        real = bart.attention

        def seeing_all(*values, **options):
            return real(*values, **options | {"causal": False})

        with mock.patch("models.bart.attention", seeing_all):
            code, said = run(source_folder("tiny-bart"), out)
        self.assertEqual(code, 1)
        self.assertRegex(said, r"^nothing was written: cpu-fp32 is wrong: its logits are [\d.]+ off torch's")
        self.assertEqual(sorted(ROOT.iterdir()), before)

    def test_a_wrong_cuda_graph_is_refused_in_single_precision(self):
        """The mask of the last layer is missing; half precision alone might hide it."""
        real = bart.attention_of_one

        def unmasked(graph, query, memory, names, heads, mask):
            return real(graph, query, memory, names, heads, graph.op("Mul", mask, graph.number(0.0)))

        with mock.patch("models.bart.attention_of_one", unmasked):
            code, said = run(source_folder("tiny-bart"), ROOT / "never", "--graphs", "cuda-fp16")
        self.assertEqual(code, 1)
        self.assertIn("cuda-fp32 is wrong", said)


class OddShapes(unittest.TestCase):
    """Differences within a family."""

    def test_bart_with_uneven_halves(self):
        """A decoder with a different number of layers and heads and a different inner width; scaled embeddings."""
        folder = copy_of("tiny-bart")
        fields = {"decoder_layers": 1, "decoder_attention_heads": 2, "decoder_ffn_dim": 48, "scale_embedding": True}
        change_json(folder / "config.json", **fields)
        weights = {}
        for name, tensor in load_file(folder / "model.safetensors").items():
            if name.startswith("model.decoder.layers."):
                if name.startswith("model.decoder.layers.1"):
                    continue
                if ".fc1." in name:
                    tensor = tensor[:48].contiguous()
                elif name.endswith(".fc2.weight"):
                    tensor = tensor[:, :48].contiguous()
            weights[name] = tensor
        save_file(weights, folder / "model.safetensors", {"format": "pt"})
        code, said = run(folder, folder.parent / "made", "--graphs", "cpu-fp32,cuda-fp16")
        self.assertEqual(code, 0, said)

    def test_weights_in_the_older_format(self):
        """`pytorch_model.bin` produces the same result as safetensors."""
        folder = copy_of("tiny-roberta")
        torch.save(load_file(folder / "model.safetensors"), folder / "pytorch_model.bin")
        (folder / "model.safetensors").unlink()
        code, said = run(folder, folder.parent / "made", "--graphs", "cpu-fp32")
        self.assertEqual(code, 0, said)
        made, own = (manifest_of(one)["vectors"] for one in (folder.parent / "made", model_folder("tiny-roberta")))
        for one, other in zip(made, own, strict=True):  # the last digits depend on where torch finds its weights
            np.testing.assert_allclose(one["logits"], other["logits"], atol=1e-5)

    def test_bert_with_one_layer(self):
        """The only layer is the last."""
        folder = copy_of("tiny-bert")
        change_json(folder / "config.json", num_hidden_layers=1)
        code, said = run(folder, folder.parent / "made", "--graphs", "cpu-fp32")
        self.assertEqual(code, 0, said)


class UnusableModels(unittest.TestCase):
    """Exit code 2, with one line that names the problem."""

    def test_each_is_refused_in_one_line(self):
        """Each change to a valid folder, with words from the error."""
        cases: list[tuple[str, str, Callable[[Path], object], str]] = [
            ("no classes", "tiny-bart", set_config(label2id=None, id2label=None), "has no `label2id`"),
            ("unnamed classes", "tiny-bart", set_classes("LABEL_0", "LABEL_1", "LABEL_2"), "is the entailment"),
            ("four classes", "tiny-bart", set_classes("entailment", "b", "c", "d"), "2 or 3"),
            ("one name for two", "tiny-bart", set_config(id2label={"0": "a", "1": "b", "2": "c"}), "contradict"),
            ("a gap", "tiny-bart", set_config(label2id={"entailment": 3, "b": 1}, id2label=None), "numbered from 0"),
            ("names for names", "tiny-bart", set_config(label2id={"a": "b"}), "does not map"),
            ("fewer names", "tiny-bart", set_classes("entailment", "not_entailment"), "do not have the shape"),
            ("unknown family", "tiny-bart", set_config(model_type="gpt2"), "`model_type` is 'gpt2'; known are bart"),
            ("another activation", "tiny-bart", set_config(activation_function="relu"), "only 'gelu'"),
            ("relative positions", "tiny-bert", set_config(position_embedding_type="relative_key"), "only 'absolute'"),
            (
                "a small vocabulary",
                "tiny-bart",
                set_config(vocab_size=300),
                "belongs to a different model: its ids go up to",
            ),
            ("a foreign tokenizer", "tiny-bart", shrink_vocabulary, "belongs to a different model"),
            ("no config", "tiny-bart", remove("config.json"), "has no `config.json`"),
            ("no tokenizer", "tiny-bart", remove("tokenizer.json"), "has no `tokenizer.json`"),
            ("no weights", "tiny-bart", remove("model.safetensors"), "has no weights"),
            ("half a config", "tiny-bart", halve("config.json"), "cannot be read"),
            ("half a tokenizer", "tiny-bart", halve("tokenizer.json"), "cannot be read"),
            ("half the weights", "tiny-bart", halve("model.safetensors"), "cannot be read"),
            ("a part lost", "tiny-bart", lose_shard, "cannot be read"),
            ("no head", "tiny-bart", drop_weights("classification_head"), "the weights lack"),
            ("one layer fewer", "tiny-bert", drop_weights("bert.encoder.layer.1"), "the weights lack"),
            ("no numbers", "tiny-bart", spoil_weights, "cannot hold"),
        ]
        for name, shape, change, words in cases:
            with self.subTest(name):
                folder = copy_of(shape)
                change(folder)
                out = folder.parent / "made"
                code, said = run(folder, out, "--graphs", "cpu-fp32")
                self.assertEqual(code, 2, said)
                self.assertIn(words, said)
                self.assertRegex(said, r"^cannot make a model folder: [^\n]+\n$")
                self.assertFalse(out.exists())

    def test_arguments_are_checked(self):
        """Missing folder, unknown graph, non-empty output folder."""
        taken = copy_of("tiny-bart")
        for words, complaint in [
            ([ROOT / "nowhere", ROOT / "never"], "is not a folder"),
            ([source_folder("tiny-bart"), ROOT / "never", "--graphs", "cpu-fp16"], "`cpu-fp16` is not a graph: choose from"),
            ([source_folder("tiny-bart"), taken], "is not an empty folder"),
        ]:
            code, said = run(*words)
            self.assertEqual(code, 2)
            self.assertIn(complaint, said)


def set_config(**fields: object) -> Callable[[Path], None]:
    """Sets fields of config.json."""
    return lambda folder: change_json(folder / "config.json", **fields)


def set_classes(*names: str) -> Callable[[Path], None]:
    """Names the classes."""
    return set_config(label2id={name: index for index, name in enumerate(names)}, id2label=None)


def shrink_vocabulary(folder: Path) -> None:
    """Removes the last 16 ids of the vocabulary from the model, but not from its tokenizer."""
    path = folder / "model.safetensors"
    weights = load_file(path)
    weights["model.shared.weight"] = weights["model.shared.weight"][:-16].contiguous()
    save_file(weights, path, {"format": "pt"})
    size = json.loads((folder / "config.json").read_text())["vocab_size"]
    change_json(folder / "config.json", vocab_size=size - 16)


def lose_shard(folder: Path) -> None:
    """Splits the weights into several files, one of them missing."""
    names = load_file(folder / "model.safetensors")
    index = {"metadata": {}, "weight_map": dict.fromkeys(names, "model-00001-of-00001.safetensors")}
    (folder / "model.safetensors").unlink()
    (folder / "model.safetensors.index.json").write_text(json.dumps(index), encoding="utf-8")


def spoil_weights(folder: Path) -> None:
    """Sets a weight to NaN."""
    path = folder / "model.safetensors"
    weights = load_file(path)
    weights["model.encoder.layers.0.fc1.weight"][0, 0] = float("nan")
    save_file(weights, path, {"format": "pt"})
