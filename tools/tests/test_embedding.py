"""Tests of model folders from sentence-transformers: contents, rejected inputs, and training on them."""

import functools
import hashlib
import json
import shutil
import tempfile
import unittest
from collections.abc import Callable
from pathlib import Path
from unittest import mock

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from transformers import (
    AutoModel,
    AutoTokenizer,
    BertConfig,
    BertModel,
    BertTokenizer,
    MPNetConfig,
    MPNetModel,
    MPNetTokenizer,
    RobertaConfig,
    RobertaModel,
    RobertaTokenizer,
)

from models.embedding import Pooled
from parity.models import (
    BYTE_LEVEL_SPECIALS,
    WORDPIECE_SPECIALS,
    fill_weights,
    train_byte_level_bpe,
    wordpiece_vocabulary,
)
from tests.support import ROOT, change_json, drop_weights, halve, manifest_of, remove, run, source_folder
from tests.test_training import posts, written
from tests.test_training import run as train
from tests.test_vectors import pipeline_file
from training.embed import Embedder

POSITIONS = 64
MOST = 48
TEXTS = ["soup", "a night train along the lake, and four days by the water", "the home team scored twice " * 30]
FAMILIES = ("bert", "mpnet", "roberta")
PROMPTS = "config_sentence_transformers.json"


@functools.cache
def folder_of(family: str) -> Path:
    """Returns a read-only sentence-transformers folder with random weights and mean pooling."""
    folder = ROOT / f"sentences-{family}"
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
    marks = {"bos_token_id": 0, "pad_token_id": 1, "eos_token_id": 2}
    if family == "bert":
        tokenizer = BertTokenizer(vocab=wordpiece_vocabulary(), model_max_length=POSITIONS)
        config = BertConfig(vocab_size=len(tokenizer), max_position_embeddings=POSITIONS, **sizes)
        model = BertModel(config)
    elif family == "mpnet":
        words = [word for word in wordpiece_vocabulary() if word not in WORDPIECE_SPECIALS]
        vocabulary = ["<s>", "<pad>", "</s>", "<unk>", "[UNK]", *words, "<mask>"]
        vocabulary = {word: place for place, word in enumerate(vocabulary)}
        tokenizer = MPNetTokenizer(vocab=vocabulary, model_max_length=POSITIONS)
        config = MPNetConfig(vocab_size=len(tokenizer), max_position_embeddings=POSITIONS + 2, **sizes, **marks)
        model = MPNetModel(config)
    else:
        vocabulary, merges = train_byte_level_bpe()
        assert set(BYTE_LEVEL_SPECIALS) <= set(vocabulary)
        tokenizer = RobertaTokenizer(vocab=vocabulary, merges=merges, model_max_length=POSITIONS)
        positions = {"max_position_embeddings": POSITIONS + 2, "type_vocab_size": 1}
        config = RobertaConfig(vocab_size=len(tokenizer), **positions, **sizes, **marks)
        model = RobertaModel(config)
    with torch.no_grad():
        fill_weights(model, 7)
    model.eval().save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    kinds = {"": "Transformer", "1_Pooling": "Pooling", "2_Normalize": "Normalize"}
    modules = [
        {"idx": place, "name": str(place), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for place, (path, kind) in enumerate(kinds.items())
    ]
    write(folder / "modules.json", modules)
    write(folder / "sentence_bert_config.json", {"max_seq_length": MOST, "do_lower_case": False})
    (folder / "1_Pooling").mkdir()
    write(folder / "1_Pooling" / "config.json", pooling("mean_tokens"))
    (folder / "LICENSE").write_text("do what you like", encoding="utf-8")
    return folder


@functools.cache
def made_of(family: str) -> Path:
    """Returns a read-only model folder made from `folder_of(family)`."""
    out = ROOT / f"made-sentences-{family}"
    code, said = run(folder_of(family), out)
    assert code == 0, said
    return out


def pooling(chosen: str) -> dict:
    """Returns the contents of 1_Pooling/config.json."""
    modes = ("cls_token", "mean_tokens", "max_tokens", "mean_sqrt_len_tokens")
    return {"word_embedding_dimension": 16} | {f"pooling_mode_{mode}": mode == chosen for mode in modes}


def write(path: Path, content: object) -> None:
    """Writes a JSON file."""
    path.write_text(json.dumps(content), encoding="utf-8")


def changed(family: str = "bert") -> Path:
    """Returns a writable copy of `folder_of(family)`."""
    folder = Path(tempfile.mkdtemp(dir=ROOT)) / "sentences"
    shutil.copytree(folder_of(family), folder)
    return folder


def by_hand(folder: Path, text: str, first: bool = False) -> np.ndarray:
    """Computes the vector of a text with sentence-transformers' formula and the files in its folder."""
    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModel.from_pretrained(folder).eval()
    encoded = tokenizer(text, truncation=True, max_length=MOST, return_tensors="pt")
    with torch.no_grad():
        states = model(**encoded).last_hidden_state[0].numpy()
    pooled = states[0] if first else states.sum(0) / len(states)
    return pooled / np.sqrt((pooled**2).sum())


class Folder(unittest.TestCase):
    """Contents of the model folder."""

    def test_vectors_equal_the_formula_alone_and_in_a_padded_batch(self):
        """For each family, with texts shorter and longer than the token limit."""
        for family in FAMILIES:
            with self.subTest(family):
                embedder = Embedder(made_of(family))
                rows = [encoding.ids for encoding in embedder.tokenizer.encode_batch(TEXTS)]
                self.assertEqual(len(rows[2]), MOST)
                expected = np.stack([by_hand(folder_of(family), text) for text in TEXTS])
                np.testing.assert_allclose(embedder.raw(rows), expected, atol=1e-5)
                for row, vector in zip(rows, expected, strict=True):
                    np.testing.assert_allclose(embedder.raw([row])[0], vector, atol=1e-5)
                self.assertLess(float(expected[0] @ expected[1]), 0.99)  # otherwise, any graph would pass

    def test_cls_takes_the_first_token(self):
        """The vector differs from the mean, for both spellings of the pooling."""
        for content in (pooling("cls_token"), {"pooling_mode": "cls"}):
            folder = changed("mpnet")
            write(folder / "1_Pooling" / "config.json", content)
            out = folder.parent / "out"
            self.assertEqual(run(folder, out)[0], 0)
            found = Embedder(out).vectors(TEXTS)
            expected = np.stack([by_hand(folder, text, first=True) for text in TEXTS])
            np.testing.assert_allclose(found, expected, atol=1e-5)
            self.assertGreater(np.abs(found - Embedder(made_of("mpnet")).vectors(TEXTS)).max(), 0.01)

    def test_config_manifest_and_files(self):
        """The `zero_shot` block, hashes, the licence, and the model's inputs."""
        for family in FAMILIES:
            with self.subTest(family):
                out = made_of(family)
                config = json.loads((out / "config.json").read_text())
                bias = config["zero_shot"].pop("sigmoid_bias")
                self.assertTrue(-1 < bias < 1)
                self.assertEqual(
                    config["zero_shot"],
                    {
                        "mode": "embedding",
                        "output": "sentence_embedding",
                        "pooling": "mean",
                        "hypothesis_template": "This text is about {}.",
                        "softmax_scale": 20.0,
                        "sigmoid_scale": 20.0,
                        "max_length": MOST,
                    },
                )
                manifest = manifest_of(out)
                self.assertEqual((manifest["kind"], manifest["family"]), ("embedding", family))
                self.assertEqual((manifest["max_tokens"], manifest["source"]), (MOST, folder_of(family).name))
                hashes = {p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in out.iterdir()}
                del hashes["manifest.toml"]
                self.assertEqual(manifest["files"], hashes)
                self.assertIn("LICENSE", hashes)
                types = ["token_type_ids"] if family == "bert" else []
                self.assertEqual(manifest["graphs"]["cpu-fp32"]["inputs"], ["attention_mask", "input_ids", *types])

    def test_texts_end_where_the_positions_end(self):
        """The lowest limit applies: the folder's, the tokenizer's, the positions, or --max-tokens."""
        for family, given, limit, words, most in (
            ("bert", 1000, 1000, (), POSITIONS),
            ("mpnet", 1000, 1000, (), POSITIONS),  # two positions are never used
            ("bert", None, 20, (), 20),
            ("bert", None, None, (), POSITIONS),
            ("bert", 1000, 1000, ("--max-tokens", 16), 16),
            ("bert", 1000, 1000, ("--max-tokens", 1000), POSITIONS),
        ):
            with self.subTest((family, given, limit, words)):
                folder = changed(family)
                change_json(folder / "sentence_bert_config.json", max_seq_length=given)
                change_json(folder / "tokenizer_config.json", model_max_length=limit)
                code, said = run(folder, folder.parent / "out", *words)
                self.assertEqual(code, 0, said)
                config = json.loads((folder.parent / "out" / "config.json").read_text())
                self.assertEqual(config["zero_shot"]["max_length"], most)

    def test_the_scale_is_as_given_and_without_modules_the_mean_is_used(self):
        """The command reports that the mean is used."""
        folder = changed()
        (folder / "modules.json").unlink()
        code, said = run(folder, folder.parent / "out", "--kind", "embedding", "--scale", 50, "--graphs", "cpu-fp32")
        self.assertEqual(code, 0, said)
        self.assertIn("has no `modules.json`: the vector of a text is the mean of its tokens", said)
        config = json.loads((folder.parent / "out" / "config.json").read_text())["zero_shot"]
        self.assertEqual((config["softmax_scale"], config["sigmoid_scale"]), (50, 50))
        same = (folder.parent / "out" / "model.onnx").read_bytes() == (made_of("bert") / "model.onnx").read_bytes()
        self.assertTrue(same)

    def test_the_bias_is_between_related_and_unrelated_texts(self):
        """Shifting all vectors in one direction increases the cosines and therefore the bias."""
        folder = changed("roberta")
        weights = load_file(folder / "model.safetensors")
        weights["encoder.layer.1.output.LayerNorm.bias"] += 3
        save_file(weights, folder / "model.safetensors", {"format": "pt"})
        self.assertEqual(run(folder, folder.parent / "out")[0], 0)
        before, after = (
            json.loads((out / "config.json").read_text())["zero_shot"]["sigmoid_bias"]
            for out in (made_of("roberta"), folder.parent / "out")
        )
        self.assertGreater(after, max(before, 0.7))

    def test_prompts_that_are_not_the_default_cause_a_warning(self):
        """A prefix in the settings, or only on the model's page as for E5."""
        folder = changed()
        write(folder / PROMPTS, {"prompts": {"query": "query: "}, "default_prompt_name": None})
        code, said = run(folder, folder.parent / "out")
        self.assertEqual(code, 0, said)
        self.assertIn("warning: ", said)
        self.assertIn("has prompts (query)", said)
        folder = changed()
        (folder / "README.md").write_text('Each text should start with "query: " or "passage: ".', encoding="utf-8")
        code, said = run(folder, folder.parent / "out")
        self.assertEqual(code, 0, said)
        self.assertIn("mentions `query: ` in its README.md", said)


class Refused(unittest.TestCase):
    """Invalid input leaves no folder."""

    def test_folders_that_cannot_be_used(self):
        """Exit code 2, and a message."""
        for change, expected in (
            (remove("tokenizer.json"), "has no `tokenizer.json`: save it with"),
            (remove("config.json"), "has no `config.json`: copy it"),
            (remove("model.safetensors"), "has no weights"),
            (halve("model.safetensors"), "cannot be read"),
            (halve("tokenizer.json"), "the tokenizer of"),
            (halve("modules.json"), "modules.json` cannot be read"),
            (drop_weights("encoder.layer.0.attention.self.query.weight"), "lack `encoder.layer.0.attention.self.query.weight`"),
            (wider, "do not have the shape that `config.json` specifies"),
            (with_json("modules.json", []), "there must be Transformer, Pooling, Normalize"),
            (with_json("modules.json", {"type": 1}), "is not a list of modules"),
            (another_module("sentence_transformers.models.Dense"), "has the module `Dense`; use a model"),
            (another_module("custom_st.Pooling"), "has the module `custom_st.Pooling`"),
            (with_json("1_Pooling/config.json", pooling("max_tokens")), "the pooling is pooling_mode_max_tokens; use"),
            (with_json("1_Pooling/config.json", pooling("cls_token") | pooling("") | BOTH), "the pooling is cls, mean"),
            (with_json("1_Pooling/config.json", {"pooling_mode": "lasttoken"}), "the pooling is lasttoken; use"),
            (remove("1_Pooling/config.json"), "has no `config.json`"),
            (with_json("sentence_bert_config.json", {"max_seq_length": "long"}), "`max_seq_length`"),
            (with_json(PROMPTS, DEFAULT_PROMPT), "the default prompt `query`, which is put before"),
            (foreign_tokenizer, "belongs to a different model: its ids go up to"),
        ):
            with self.subTest(expected):
                folder = changed()
                change(folder)
                self.refused(folder, 2, expected)

    def test_settings_that_the_program_does_not_follow(self):
        """sentence-transformers would lower-case the texts, but RoBERTa's tokenizer does not."""
        folder = changed("roberta")
        change_json(folder / "sentence_bert_config.json", do_lower_case=True)
        self.refused(folder, 2, "and sentence-transformers differ in the ids for")

    def test_arguments(self):
        """Exit code 2, before the model is read."""
        folder = folder_of("bert")
        self.refused(folder, 2, "leave out --graphs", "--graphs", "cpu-fp32,cpu-int8")
        self.refused(folder, 2, "`half` is not a graph", "--graphs", "half")
        self.refused(folder, 2, "--scale is 0", "--scale", 0)
        self.refused(folder, 2, "--scale is nan", "--scale", "nan")
        self.refused(folder, 2, "--max-tokens is 2: set it to 3 or more", "--max-tokens", 2)
        self.refused(source_folder("tiny-bert"), 2, "are for an embedding model", "--scale", 20)
        self.refused(source_folder("tiny-bert"), 2, "are for an embedding model", "--max-tokens", 20)
        self.refused(source_folder("tiny-bart"), 2, "has a decoder", "--kind", "embedding")
        self.refused(ROOT / "nowhere", 2, "is not a folder", "--kind", "embedding")
        with self.subTest("OUT is not empty"):
            code, said = run(folder, made_of("bert"))
            self.assertEqual(code, 2)
            self.assertIn("exists and is not an empty folder", said)

    def test_a_graph_that_averages_padding_is_wrong(self):
        """Exit code 1, although a text alone would have the right vector."""

        def all_tokens(self: Pooled, *tensors: torch.Tensor) -> torch.Tensor:
            states = self.encoder(**dict(zip(self.input_names, tensors, strict=True))).last_hidden_state
            return torch.nn.functional.normalize(states.mean(1), dim=1)

        with mock.patch.object(Pooled, "forward", all_tokens):
            self.refused(folder_of("bert"), 1, "model.onnx is wrong: its vectors are")

    def test_a_graph_that_torch_cannot_export(self):
        """Exit code 1, with torch's message."""
        with mock.patch.object(Pooled, "forward", side_effect=RuntimeError("no such operator")):
            self.refused(folder_of("bert"), 1, "the family 'bert' cannot be exported: no such operator")

    def refused(self, folder: Path, expected: int, sentence: str, *words: object) -> None:
        """Runs the command; nothing may exist at OUT afterwards."""
        place = Path(tempfile.mkdtemp(dir=ROOT))
        code, said = run(folder, place / "out", *words)
        self.assertEqual(code, expected, said)
        self.assertIn(sentence, said)
        self.assertEqual(said.count("\n"), 1, said)
        self.assertEqual(list(place.iterdir()), [])


class Training(unittest.TestCase):
    """train.py with the folder of an embedding model as its base."""

    def test_label_vectors_are_learned_for_any_family(self):
        """The graph is kept; the labels in the pipeline file have vectors."""
        words = ("--keep-zero-shot", "--pipeline", pipeline_file())
        code, said, out = train(written(posts()), *words, base=made_of("mpnet"))
        self.assertEqual(code, 0, said)
        self.assertEqual((out / "model.onnx").read_bytes(), (made_of("mpnet") / "model.onnx").read_bytes())
        labels = json.loads((out / "label_vectors.json").read_text())["labels"]
        self.assertEqual([len(label["vector"]) for label in labels], [16, 16, 16])
        manifest = manifest_of(out)
        self.assertEqual((manifest["kind"], manifest["family"]), ("embedding", "mpnet"))
        self.assertIn("label_vectors.json", manifest["files"])

    def test_what_needs_the_encoder_is_refused_before_any_work(self):
        """No encoder can be read from these graphs: even BERT's lacks the tensor names of the default model."""
        for family in ("mpnet", "bert"):
            for words in ((), ("--head-only",)):
                with self.subTest((family, words)), mock.patch("training.whole.read_corpus") as read:
                    code, said, out = train(written(posts()), *words, base=made_of(family))
                    self.assertEqual(code, 2, said)
                    self.assertIn("cannot be trained, only label vectors for it: add --keep-zero-shot", said)
                    self.assertFalse(read.called)
                    self.assertFalse(out.exists())

    def test_large_weights_are_stored_next_to_the_graph(self):
        """The manifest contains their hash."""
        with mock.patch("models.export.INLINE_LIMIT_BYTES", 1000):
            folder = changed("mpnet")
            self.assertEqual(run(folder, folder.parent / "out")[0], 0)
        self.assertIn("model.onnx_data", manifest_of(folder.parent / "out")["files"])


BOTH = {"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": True}
DEFAULT_PROMPT = {"prompts": {"query": "query: "}, "default_prompt_name": "query"}


def with_json(name: str, content: object) -> Callable[[Path], None]:
    """Replaces a file."""
    return lambda folder: write(folder / name, content)


def another_module(kind: str) -> Callable[[Path], None]:
    """Appends a module."""

    def change(folder: Path) -> None:
        modules = json.loads((folder / "modules.json").read_text())
        write(folder / "modules.json", [*modules, {"idx": 3, "name": "3", "path": "3_More", "type": kind}])

    return change


def wider(folder: Path) -> None:
    """Sets the configuration of a wider model."""
    change_json(folder / "config.json", intermediate_size=64)


def foreign_tokenizer(folder: Path) -> None:
    """Gives the tokenizer more ids than the model has."""
    shutil.copyfile(folder_of("roberta") / "tokenizer.json", folder / "tokenizer.json")
    size = json.loads((folder / "config.json").read_text())["vocab_size"]
    vocabulary = json.loads((folder / "tokenizer.json").read_text())["model"]["vocab"]
    assert len(vocabulary) > size


if __name__ == "__main__":
    unittest.main()
