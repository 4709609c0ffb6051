"""Tests of model folders from GLiClass checkpoints: logits equal the package's, unusable checkpoints are rejected."""

import functools
import itertools
import json
import shutil
import tempfile
import unittest
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from transformers import AutoTokenizer

from models.gliclass import GliclassSource, read_gliclass
from models.inputs import Pair, feed
from parity.cases import FORTY, ODD, TEXTS
from parity.gliclass import Spec, logits_of, write_checkpoint
from tests.support import ROOT, change_json, drop_weights, manifest_of, remove, run, source_folder

# Scorers and poolings of published models, and the others that the package offers.
FIELDS = {
    "simple": {},
    "mean": {"pooling_strategy": "avg", "class_token_pooling": "average"},
    "next": {"embed_class_token": False, "pooling_strategy": "max"},
    "words": {"embed_class_token": False, "class_token_pooling": "average", "scorer_type": "weighted-dot"},
    "mlp": {"scorer_type": "mlp", "pooling_strategy": "avg", "prompt_first": False},
    "attention": {"scorer_type": "cross-attn", "pooling_strategy": "pass", "scorer_num_heads": 4},
    "normal": {"normalize_features": True, "pooling_strategy": "last", "prompt_first": False},
    "extract": {"extract_text_features": True, "pooling_strategy": "rms", "class_token_pooling": "average"},
    "calibrated": {"use_calibrator": True, "calibrator_use_bias": True, "use_segment_embeddings": True},
}
# A text after a task prompt without a space at its end continues the last word.
TASK_PROMPTS = {"mean": "What is this text about", "mlp": "What is this text about?", "attention": "Choose topics: "}
PAIRS = [
    *(("bert", name) for name in FIELDS),
    *(("deberta", name) for name in ("simple", "mlp", "normal")),
    *(("modernbert", name) for name in ("simple", "attention")),
]


@functools.cache
def checkpoint(encoder: str = "bert", name: str = "simple") -> Path:
    """Returns a read-only checkpoint with random weights."""
    folder = ROOT / f"gliclass-{encoder}-{name}"
    prepend = "first" if name in ("mlp", "normal") else "always"
    write_checkpoint(Spec(name, encoder, 3, FIELDS[name], prepend), folder)
    return folder


@functools.cache
def made(encoder: str = "bert", name: str = "simple", graphs: str = "cpu-fp32") -> Path:
    """Returns a read-only model folder made from `checkpoint(encoder, name)`."""
    out = ROOT / f"made-gliclass-{encoder}-{name}-{graphs}"
    code, said = run(checkpoint(encoder, name), out, "--graphs", graphs)
    assert code == 0, said
    return out


def changed(change: Callable[[Path], object]) -> Path:
    """Returns a changed copy of a checkpoint."""
    folder = Path(tempfile.mkdtemp(dir=ROOT)) / "hf"
    shutil.copytree(checkpoint(), folder)
    change(folder)
    return folder


def graph_logits(source: GliclassSource, graph: Path, rows: list[list[int]]) -> np.ndarray:
    """Returns the graph's logits for one padded batch."""
    session = onnxruntime.InferenceSession(graph, providers=["CPUExecutionProvider"])
    inputs = feed(["input_ids", "attention_mask"], [Pair(row, [0] * len(row)) for row in rows], source.filling)
    return session.run(["logits"], inputs)[0]


class Parity(unittest.TestCase):
    """Compares the graph with the package, which reads each text alone."""

    def test_logits_equal_the_package_in_any_batch_and_for_any_number_of_labels(self):
        """The graph identifies labels by their token, so one graph accepts 1 to 40 labels."""
        names = ("title", "post", "empty", "blanks around", "emoji", "japanese", "decomposed", "invisible")
        texts = [TEXTS[name] for name in names]
        for encoder, name in PAIRS:
            task_prompt = TASK_PROMPTS.get(name, "")
            source = read_gliclass(checkpoint(encoder, name), task_prompt)
            tokenizer = AutoTokenizer.from_pretrained(checkpoint(encoder, name))
            graph = made(encoder, name) / "cpu-fp32.onnx"
            for labels in (["one"], [label for label in ODD if "SEP" not in label], FORTY):
                with self.subTest(encoder, name=name, labels=len(labels)):
                    rows = [source.prompt.ids(labels, text, 10_000) for text in texts]
                    prompt = "".join(f"<<LABEL>>{label}" for label in labels) + "<<SEP>>" + task_prompt
                    first = source.config.prompt_first
                    whole = [prompt + text if first else text + prompt for text in texts]
                    self.assertEqual(rows, tokenizer(whole)["input_ids"])
                    short = [place for place, row in enumerate(rows) if len(row) <= source.max_tokens]
                    some = [texts[place] for place in short]
                    expected = logits_of(source.reference, tokenizer, labels, some, task_prompt)
                    found = graph_logits(source, graph, [rows[place] for place in short])
                    np.testing.assert_allclose(found, expected, atol=3e-4, rtol=1e-5)

    def test_a_text_is_truncated_and_the_labels_are_kept(self):
        """Even if the labels follow the text: the package would then truncate the labels."""
        for name, task_prompt in itertools.product(("simple", "mlp"), ("", "What is this text about?")):
            source = read_gliclass(checkpoint("bert", name), task_prompt)
            ids = source.prompt.ids(FORTY[:9], TEXTS["long"] * 9, source.max_tokens)
            self.assertEqual(len(ids), source.max_tokens)
            self.assertEqual(ids.count(source.config.class_token_index), 9)
            self.assertEqual(ids[-1], source.tokenizer.sep_token_id)

    def test_special_tokens_in_a_text_are_text(self):
        """A literal `<<LABEL>>` is not a label."""
        source = read_gliclass(checkpoint())
        ids = source.prompt.ids(["food"], "<<LABEL>> is text, and <<SEP>>, [SEP] and [CLS]", source.max_tokens)
        for token, count in [("<<LABEL>>", 1), ("<<SEP>>", 1), ("[SEP]", 1), ("[CLS]", 1)]:
            self.assertEqual(ids.count(source.tokenizer.convert_tokens_to_ids(token)), count, token)


class Folders(unittest.TestCase):
    """The contents of a folder."""

    def test_the_manifest_has_labels_with_each_vector(self):
        """The graphs take any number of rows, tokens and labels, and int8 leaves the head in float32."""
        folder = made(graphs="cpu-fp32,cpu-int8,cuda-fp16")
        manifest = manifest_of(folder)
        self.assertEqual((manifest["kind"], manifest["classes"], manifest["max_tokens"]), ("gliclass", [], 256))
        for vector in manifest["vectors"]:
            self.assertEqual(len(vector["labels"]), len(vector["logits"]))
        for name in ("cpu-fp32", "cpu-int8", "cuda-fp16"):
            graph = onnx.load(folder / f"{name}.onnx").graph
            for value in (*graph.input, *graph.output):
                self.assertTrue(all(axis.dim_param for axis in value.type.tensor_type.shape.dim), value)
        whole = [node.op_type for node in onnx.load(folder / "cpu-int8.onnx").graph.node]
        self.assertEqual(whole.count("MatMulInteger"), 12)

    def test_a_task_prompt_is_stored_and_precedes_each_text(self):
        """Without `--task-prompt`, config.json is a copy of the checkpoint's."""
        task_prompt, out = "Name the topics: ", Path(tempfile.mkdtemp(dir=ROOT)) / "made"
        code, said = run(checkpoint(), out, "--graphs", "cpu-fp32", "--task-prompt", task_prompt)
        self.assertEqual(code, 0, said)
        before, after = ((folder / "config.json").read_bytes() for folder in (checkpoint(), out))
        self.assertEqual(json.loads(after), json.loads(before) | {"task_prompt": task_prompt})
        self.assertEqual((made("bert", "simple") / "config.json").read_bytes(), before)
        source = read_gliclass(checkpoint())
        for vector in manifest_of(out)["vectors"]:
            ids = source.prompt.ids(vector["labels"], task_prompt + vector["premise"], source.max_tokens)
            self.assertEqual(vector["input_ids"], ids)

    def test_the_token_limit_comes_from_the_package_or_the_positions(self):
        """An encoder with relative positions has the limit of the package's pipeline."""
        self.assertEqual(read_gliclass(checkpoint("deberta", "simple")).max_tokens, 1024)
        self.assertEqual(read_gliclass(checkpoint()).max_tokens, 256)


class Refusals(unittest.TestCase):
    """Exit code 2, with one line that names the problem."""

    def test_each_is_refused_in_one_line(self):
        """Each change to a valid checkpoint, with words from the error."""
        config = lambda **fields: lambda folder: change_json(folder / "config.json", **fields)  # noqa: E731
        cases: list[tuple[Callable[[Path], object], str]] = [
            (config(architecture_type="bi-encoder"), "`architecture_type` is 'bi-encoder'; known are uni-encoder"),
            (config(architecture_type="decoder-kv"), "'decoder-kv'"),
            (config(scorer_type="decoder-kv"), "`scorer_type`"),
            (config(pooling_strategy="pass"), "does not go with"),
            (config(use_lstm=True), "`use_lstm`"),
            (config(squeeze_layers=True), "`squeeze_layers`"),
            (config(encoder_layer_id=2), "`encoder_layer_id`"),
            (config(max_labels_alloc="fixed", max_num_classes=2), "2 labels at most"),
            (config(task_prompt=3), "`task_prompt` is not a string"),
            (config(class_token_index=7), "`class_token_index` of config.json is 7"),
            (remove("tokenizer.json"), "has no `tokenizer.json`"),
            (forget_token, "has no token `<<LABEL>>`"),
            (drop_weights("classes_projector"), "the weights of"),
        ]
        for change, words in cases:
            with self.subTest(words):
                folder = changed(change)
                code, said = run(folder, folder.parent / "made", "--graphs", "cpu-fp32")
                self.assertEqual(code, 2, said)
                self.assertIn(words, said)
                self.assertRegex(said, r"^cannot make a model folder: [^\n]+\n$")
                self.assertFalse((folder.parent / "made").exists())

    def test_an_unusable_task_prompt_is_rejected(self):
        """A token of the prompt, too many words, or a model of another kind."""
        out = Path(tempfile.mkdtemp(dir=ROOT)) / "made"
        for folder, task_prompt, words in [
            (checkpoint(), "a <<SEP>> b", "the task prompt contains `<<SEP>>`"),
            (checkpoint(), "<<LABEL>>a", "the task prompt contains `<<LABEL>>`"),
            (checkpoint(), "many words " * 100, "leaves no room for a text in the model's window of 256"),
            (source_folder("tiny-bert"), "Choose:", "--task-prompt is for a GLiClass model: leave it out"),
        ]:
            with self.subTest(words):
                code, said = run(folder, out, "--task-prompt", task_prompt)
                self.assertEqual(code, 2, said)
                self.assertIn(words, said)
                self.assertFalse(out.exists())

    def test_a_different_kind_of_model_is_rejected(self):
        """With `--kind gliclass`."""
        folder = changed(lambda folder: change_json(folder / "config.json", model_type="bert"))
        code, said = run(folder, folder.parent / "made", "--kind", "gliclass")
        self.assertEqual(code, 2)
        self.assertIn("`model_type` is 'bert'", said)


def forget_token(folder: Path) -> None:
    """Renames the label's token in both files of the tokenizer."""
    for name in ("tokenizer.json", "tokenizer_config.json"):
        text = (folder / name).read_text(encoding="utf-8")
        (folder / name).write_text(text.replace("<<LABEL>>", "<<OTHER>>"), encoding="utf-8")
    assert "<<LABEL>>" not in json.dumps(json.loads((folder / "tokenizer.json").read_text(encoding="utf-8")))
