"""Tests of a model folder's contents, using only the manifest, as a third-party program would."""

import hashlib
import tomllib
import unittest
from pathlib import Path
from unittest import mock

import numpy as np
import onnx
import onnxruntime

from models.manifest import toml
from tests.support import BUILT, SHAPES, change_json, copy_of, manifest_of, model_folder, run, source_folder

KINDS = {"int64": np.int64, "int32": np.int32, "float32": np.float32}


class ModelFolder(unittest.TestCase):
    """Every family, every graph."""

    def test_the_files_match_the_manifest(self):
        """Names and hashes."""
        for shape in SHAPES:
            with self.subTest(shape):
                folder = model_folder(shape)
                found = {p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in folder.iterdir()}
                del found["manifest.toml"]
                self.assertEqual(found, manifest_of(folder)["files"])
                self.assertEqual(
                    (folder / "config.json").read_bytes(), (source_folder(shape) / "config.json").read_bytes()
                )

    def test_each_graph_returns_the_manifests_vectors(self):
        """Each vector alone, and all padded in one batch, using only the manifest."""
        for shape in SHAPES:
            manifest = manifest_of(model_folder(shape))
            for name, graph in manifest["graphs"].items():
                with self.subTest(shape, graph=name):
                    session = session_of(model_folder(shape) / graph["file"], graph["session"])
                    vectors = manifest["vectors"]
                    for batch in [[vector] for vector in vectors] + [vectors]:
                        (found,) = session.run([manifest["contract"]["output"]], inputs_of(manifest, graph, batch))
                        error = np.abs(found - np.array([vector["logits"] for vector in batch])).max()
                        self.assertLessEqual(error, graph["tolerance"])

    def test_no_vector_is_like_another(self):
        """Otherwise a graph that ignores its input would pass."""
        for shape in SHAPES:
            logits = np.array([vector["logits"] for vector in manifest_of(model_folder(shape))["vectors"]])
            self.assertGreater(np.ptp(logits, axis=0).max(), 0.5, shape)

    def test_nothing_keeps_a_gpu_waiting(self):
        """No node of a built CUDA graph computes a shape or an index, or must run on the CPU."""
        for shape in BUILT:
            with self.subTest(shape):
                graph = onnx.load(model_folder(shape) / "cuda-fp16.onnx").graph
                kinds = {node.op_type for node in graph.node}
                self.assertEqual(kinds & {"Shape", "Size", "Range", "NonZero", "ConstantOfShape", "Where"}, set())
                self.assertEqual(manifest_of(model_folder(shape))["graphs"]["cuda-fp16"]["host_ops"], [])

    def test_half_precision_holds_the_weights_but_not_the_head(self):
        """The layers' matrices are float16; the head's are float32."""
        for shape in BUILT:
            with self.subTest(shape):
                weights = onnx.load(model_folder(shape) / "cuda-fp16.onnx").graph.initializer
                full = {tensor.name for tensor in weights if tensor.data_type == onnx.TensorProto.FLOAT}
                self.assertEqual(len(full), 4, full)

    def test_eight_bits_leave_head_and_heads_alone(self):
        """In the last layer, three-dimensional products remain in float32; so does the head."""
        graph = onnx.load(model_folder("tiny-bart") / "cpu-int8.onnx").graph
        left = {node.name for node in graph.node if node.op_type == "MatMul"}
        last = "model.decoder.layers.1"
        wanted = {f"{last}.{part}.{kind}_proj/heads" for part in ("self_attn", "encoder_attn") for kind in "kv"}
        wanted |= {"classification_head.dense/head", "classification_head.out_proj/head"}
        self.assertLessEqual(wanted, left)
        self.assertFalse([name for name in left - wanted if not name.startswith("MatMul_")])  # two activations

    def test_large_weights_are_stored_next_to_their_graph(self):
        """As for graphs of more than 256 MB; the test lowers this limit."""
        folder = copy_of("tiny-bart").parent / "made"
        with mock.patch("models.export.INLINE_LIMIT_BYTES", 1000):
            code, said = run(source_folder("tiny-bart"), folder)
        self.assertEqual(code, 0, said)
        for name, graph in manifest_of(folder)["graphs"].items():
            self.assertEqual(graph["data"], [f"{name}.onnx_data"])
            self.assertGreater((folder / graph["data"][0]).stat().st_size, (folder / graph["file"]).stat().st_size)

    def test_the_order_of_the_classes_is_the_model_s_own(self):
        """The same weights under different names return the same logits and different classes."""
        folder = copy_of("tiny-bart")
        change_json(folder / "config.json", label2id={"Entailment": 0, "other": 2, "NEUTRAL": 1}, id2label=None)
        self.assertEqual(run(folder, folder.parent / "made", "--graphs", "cpu-fp32")[0], 0)
        other, own = manifest_of(folder.parent / "made"), manifest_of(model_folder("tiny-bart"))
        self.assertEqual(other["classes"], ["Entailment", "NEUTRAL", "other"])
        self.assertEqual(own["classes"], ["contradiction", "neutral", "entailment"])
        self.assertEqual(other["vectors"], own["vectors"])

    def test_odd_strings_survive_the_manifest(self):
        """The standard library reads what was written."""
        odd = 'a "b" \\ c\n\td \u0001 🚆 </s>'
        content = {
            "text": odd,
            "yes": True,
            "list": [1, 2],
            "table": {odd: 1.5, "in": {"line": odd}},
            "rows": [{"x": odd}],
        }
        self.assertEqual(tomllib.loads(toml(content)), content)


def session_of(path: Path, settings: dict[str, str]) -> onnxruntime.InferenceSession:
    """Loads the graph with the manifest's settings."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    for key, value in settings.items():
        options.add_session_config_entry(key, value)
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def inputs_of(manifest: dict, graph: dict, batch: list[dict]) -> dict[str, np.ndarray]:
    """Builds a batch as README.md describes the inputs, row by row, independently of `models.inputs.feed`."""
    contract = manifest["contract"]
    width = max(len(vector["input_ids"]) for vector in batch)
    columns = {name: [] for name in graph["inputs"] if name != "positions"}
    for row, vector in enumerate(batch):
        ids = vector["input_ids"]
        gap = width - len(ids)
        full = ids + [contract["pad_id"]] * gap
        entries = {
            "input_ids": full,
            "token_type_ids": vector.get("token_type_ids", []) + [0] * gap,
            "lengths": len(ids),
            "attention_mask": [1] * len(ids) + [0] * gap,
            "decoder_ids": [contract.get("decoder_start_id"), *full[:-1]],
            "last": row * width + len(ids) - 1,
            "mask": [[0.0] * len(ids) + [contract["masked"]] * gap],
        }
        for name, column in columns.items():
            column.append(entries[name])
    if "positions" in graph["inputs"]:
        columns["positions"] = list(range(width))
    return {name: np.array(column, KINDS[manifest["inputs"][name]["type"]]) for name, column in columns.items()}
