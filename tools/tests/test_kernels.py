"""Tests that each node of a CUDA graph has a CUDA kernel for its types."""

import copy
import unittest
from unittest import mock

import onnx
import onnxruntime
from onnx import helper

from models import kernels
from models.graph import OPSET
from models.make import built
from models.source import read_source
from tests.support import BUILT, ROOT, model_folder, run, source_folder


class Kernels(unittest.TestCase):
    """The list of kernels, and the graphs of every supported family."""

    def test_each_node_has_a_kernel(self):
        """In float16, and in float32, the precision used to verify a float16 graph."""
        for shape in BUILT:
            source = read_source(source_folder(shape))
            for precision in ("fp16", "fp32"):
                with self.subTest(shape, precision=precision):
                    graph = built(source, "cuda", precision)
                    self.assertEqual(kernels.without_kernel(graph), [])
                    self.assertEqual(sum(kernels.signatures(graph).values()), len(graph.graph.node))

    def test_a_type_without_a_kernel_is_found(self):
        """The same operator with different types needs a different kernel."""
        graph = copy.deepcopy(onnx.load(model_folder("tiny-bart") / "cuda-fp16.onnx"))
        graph.graph.node.append(helper.make_node("Tanh", ["last"], ["odd"], name="odd"))
        graph.graph.node.append(helper.make_node("Det", ["mask"], ["even"], name="even"))
        self.assertEqual(kernels.without_kernel(graph), ["Det float -> float", "Tanh int64 -> int64"])

    def test_a_graph_with_a_node_without_a_kernel_is_not_made(self):
        """The error names the node."""
        with mock.patch("models.make.without_kernel", return_value=["Det float -> float"]):
            code, said = run(source_folder("tiny-bart"), ROOT / "host", "--graphs", "cuda-fp16")
        self.assertEqual(code, 1)
        self.assertIn("Det float -> float", said)
        self.assertFalse((ROOT / "host").exists())

    def test_the_list_is_for_this_version(self):
        """The list names the pinned runtime and the builders' opset."""
        version, listed = kernels.read_list()
        self.assertEqual(version, onnxruntime.__version__)
        self.assertIn(f"opset {OPSET}:", kernels.LIST.read_text(encoding="utf-8"))
        self.assertGreater(len(listed), 20)
