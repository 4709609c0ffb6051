"""Tests of training the default model: posts, targets, steps, interpolation and output."""

import contextlib
import gzip
import io
import json
import sys
import tempfile
import unittest
from dataclasses import replace
from functools import partial
from pathlib import Path
from unittest import mock

import numpy as np
import torch
from tokenizers import Tokenizer

import train_default
from models import InputError
from tests.support import ROOT
from tests.test_embedding import folder_of
from training import subreddits, teacher, topics
from training.embed import Embedder
from training.packed import Packed, read_packable
from training.shipped import read_shipped, write_shipped
from training.words import Label, read_labels

REPOSITORY = Path(__file__).resolve().parents[2]
SHIPPED = REPOSITORY / "models" / "minilm-reddit-topics"
LABELS = [
    Label("food", "food", ["This text is about food."]),
    Label("travel", "travel", ["This text is about travel.", "Trips."]),
]


def post(number: int, subreddit: str, topic: str, body: str = "") -> dict:
    """Returns a line of a file of posts."""
    return {
        "id": f"{subreddit}{number}",
        "title": f"{topic} {subreddit} {number}",
        "selftext": body,
        "subreddit": subreddit,
        "topic": topic,
    }


def read(known: list[dict], broad: list[dict]) -> subreddits.Posts:
    """Writes two files, the second compressed, and reads them."""
    folder = Path(tempfile.mkdtemp(dir=ROOT))
    (folder / "known.ndjson").write_text("\n".join(map(json.dumps, known)), encoding="utf-8")
    with gzip.open(folder / "broad.ndjson.gz", "wt", encoding="utf-8") as file:
        file.write("\n".join(map(json.dumps, broad)))
    return subreddits.read_posts(folder / "known.ndjson", folder / "broad.ndjson.gz", LABELS)


def some_posts() -> subreddits.Posts:
    """Returns posts of two well-known subreddits, and of eleven more for each topic."""
    known = [post(n, name, name, "hot") for name in ("food", "travel") for n in range(4)]
    broad = [post(n, f"{topic}{k}", topic) for topic in ("food", "travel") for k in range(11) for n in range(2)]
    return read(known, broad)


def tokenizer() -> Tokenizer:
    """Opens the tokenizer of the default model."""
    return Tokenizer.from_file(str(SHIPPED / "tokenizer.json"))


def trainer(dtype: torch.dtype) -> topics.Trainer:
    """Returns a trainer of three steps with four texts each."""
    recipe = replace(topics.Recipe(), frozen=4, batch=4, others=1, dtype=dtype)
    round = replace(topics.ROUNDS[1], texts=14)
    posts = some_posts()
    weights = subreddits.weights_of(posts, np.zeros(len(posts.ids), bool), 0.5, 4.0)
    targets = np.stack([teacher.topics_of(posts, 2)] * 2)
    others = ["This text is about chess."]
    model, silent = read_shipped(SHIPPED), lambda _: None
    begin = {name: weight.clone() for name, weight in model.state_dict().items()}
    return topics.Trainer(model, tokenizer(), LABELS, posts, weights, targets, others, recipe, round, 1, silent, begin)


class Default(unittest.TestCase):
    """Each part of train_default.py."""

    def test_a_folder_that_is_read_and_written_has_the_same_bytes(self):
        """Reading and writing change no weight; only training does."""
        out = Path(tempfile.mkdtemp(dir=ROOT))
        write_shipped(read_shipped(SHIPPED), SHIPPED, out)
        for path in SHIPPED.iterdir():
            if path.name in ("model.onnx", "tokenizer.json"):
                self.assertEqual((out / path.name).read_bytes(), path.read_bytes(), path.name)
        self.assertEqual((out / "config.json").read_bytes(), (SHIPPED / "config.json").read_bytes())

    def test_the_same_seed_gives_the_same_weights(self):
        """The weights are equal to the last bit; only the last two layers change."""
        for dtype in (torch.float32, torch.bfloat16):
            with self.subTest(dtype):
                one, other = trainer(dtype), trainer(dtype)
                before = {name: weight.clone() for name, weight in one.model.state_dict().items()}
                self.assertEqual(one.steps, 3)
                weights, again = one.run(), other.run()
                moved = set()
                for name, weight in weights.items():
                    self.assertTrue(torch.equal(weight, again[name]), name)
                    if not torch.equal(weight, before[name]):
                        moved.add(name.split(".")[2] if name.startswith("encoder") else name)
                self.assertEqual(moved, {"4", "5"})

    def test_packed_layers_return_the_networks_vectors(self):
        """Texts of different lengths, from ids or from the states of a lower layer, of both families; bf16 differs
        little."""
        texts = ["soup", "night train to a lake " * 9, "a", "garlic and onion soup"]
        tiny = read_packable(folder_of("mpnet"), 48)
        for model, words, layer, least in [
            (read_shipped(SHIPPED), tokenizer(), 3, 0.999),
            (tiny.model, Tokenizer.from_file(str(tiny.folder / "tokenizer.json")), 1, 0.99),
        ]:
            ids = topics.encoded(words, texts, 48)
            with self.subTest(model.config.model_type), torch.no_grad():
                wanted = []
                for row in ids:
                    states = model(input_ids=torch.tensor([row])).last_hidden_state[0]
                    wanted.append(torch.nn.functional.normalize(states.mean(0), dim=0))
                packed = Packed(model, torch.float32)
                vectors, states = packed.embed(ids, layer)
                torch.testing.assert_close(vectors, torch.stack(wanted), atol=1e-5, rtol=0)
                torch.testing.assert_close(packed.upper(states, layer), vectors, atol=1e-5, rtol=0)
                rounded, _ = Packed(model, torch.bfloat16).embed(ids)
                self.assertGreater((rounded * vectors).sum(1).min().item(), least)

    def test_weights_are_averaged_and_mixed(self):
        """Integers are not averaged or mixed."""
        one, two = ({"w": torch.tensor([value]), "n": torch.tensor(3)} for value in (1.0, 3.0))
        mean = topics.averaged([one, two])
        self.assertEqual((mean["w"].item(), mean["n"].item()), (2.0, 3))
        self.assertAlmostEqual(topics.mixed(one, mean, 0.6)["w"].item(), 1.6, places=5)

    def test_a_post_counts_once(self):
        """The same id, or the same text under a different id, is the same post; removed bodies do not count as text."""
        one = post(1, "food", "food", "[removed]")
        posts = read([one], [one, one | {"id": "other", "title": "FOOD  food 1"}, post(2, "soup", "food", "hot")])
        self.assertEqual(posts.ids, ["food1", "soup2"])
        self.assertEqual(posts.whole, ["food food 1", "food soup 2\n\nhot"])
        self.assertEqual(posts.titles, ["food food 1", "food soup 2"])
        self.assertEqual(posts.known.tolist(), [True, False])

    def test_topics_are_drawn_equally_often_and_left_out_subreddits_never(self):
        """A subreddit's weight is the square root of its number of posts, times four if it is well known."""
        posts = some_posts()
        left_out = posts.subreddits == "food3"
        weights = subreddits.weights_of(posts, left_out, 0.5, 4.0)
        of = lambda name: weights[posts.subreddits == name].sum()  # noqa: E731
        self.assertAlmostEqual(weights[posts.labels == 0].sum(), 0.5)
        self.assertEqual(of("food3"), 0)
        self.assertAlmostEqual(of("food") / of("food1"), 4 * 2 / 2**0.5)
        order = subreddits.drawn(weights, 1000, 0.5, np.random.default_rng(1))
        self.assertAlmostEqual(len(order), 1000, delta=40)
        self.assertFalse({index for index, _ in order} & set(np.flatnonzero(left_out)))
        self.assertAlmostEqual(sum(is_title for _, is_title in order) / len(order), 0.5, delta=0.1)

    def test_folds_leave_out_whole_subreddits_but_no_well_known_one(self):
        """A fold leaves out two of the eleven subreddits of each topic; no subreddit is left out twice."""
        posts = some_posts()
        folds = subreddits.folds_of(posts, LABELS)
        self.assertEqual([len(fold) for fold in folds], [4] * 5)
        self.assertEqual(len(set().union(*folds)), 20)
        self.assertFalse(set().union(*folds) & {"food", "travel"})

    def test_a_target_is_softened_where_the_teacher_doubts_it(self):
        """One subreddit is really about the other topic: there, only the teacher determines the target."""
        posts, belief = some_posts(), teacher.Belief(scale=20.0, broad=0.65)
        truth = np.where(posts.subreddits == "food3", 1, posts.labels)
        cosines = np.stack([0.2 * np.eye(2, dtype=np.float32)[truth]] * 2)
        cosines[:, posts.subreddits == "food4"] = np.nan
        said = []
        targets = teacher.targets_of(posts, cosines, belief, said.append)
        np.testing.assert_allclose(targets.sum(2), 1, atol=1e-5)
        sure = 1 / (1 + np.exp(-4.0))
        np.testing.assert_allclose(targets[:, posts.subreddits == "food3", 1], sure, atol=1e-5)
        np.testing.assert_allclose(targets[:, posts.subreddits == "food4"], [[[0.975, 0.025]] * 2] * 2, atol=1e-5)
        mixed = 0.35 * 0.975 + 0.65 * sure
        np.testing.assert_allclose(targets[:, posts.subreddits == "food5", 0], mixed, atol=1e-5)
        self.assertIn("2 of 50 posts", said[0])

    def test_both_halves_have_subreddits_of_each_topic(self):
        """No teacher is trained on the subreddit whose posts it scores, except on other posts of a well-known one."""
        posts = some_posts()
        halves = teacher.halves_of(posts)
        for number in range(2):
            names = [set(posts.subreddits[(halves == half) & (posts.labels == number)]) for half in range(2)]
            self.assertFalse(names[0] & names[1] - {"food", "travel"})
            self.assertGreaterEqual(min(map(len, names)), 5)

    def test_a_teacher_learns_topics_and_its_lower_layers_stay(self):
        """A tiny MPNet with random weights; the same seed gives the same weights."""
        posts = some_posts()
        weights = subreddits.weights_of(posts, np.zeros(len(posts.ids), bool), 0.5, 4.0)
        teaching = teacher.Teaching(texts=600, rate=3e-3, label_rate=3e-2, frozen=1, batch=8)
        states = []
        for _ in range(2):
            one = teacher.Teacher(folder_of("mpnet"), LABELS, torch.float32, teaching)
            before = {name: weight.clone() for name, weight in one.packed.model.state_dict().items()}
            one.fine_tune(posts, weights, 0, lambda _: None)
            states.append(one.packed.model.state_dict())
            right = (one.cosines(posts.whole).argmax(1).numpy() == posts.labels).mean()
            self.assertGreater(right, 0.9)
        for name, weight in states[0].items():
            self.assertTrue(torch.equal(weight, states[1][name]), name)
            if not name.startswith(("encoder.layer.1", "pooler")):
                self.assertTrue(torch.equal(weight, before[name]), name)

    def test_a_teacher_of_a_different_family_is_rejected(self):
        """The message names the family."""
        with self.assertRaisesRegex(InputError, "roberta"):
            teacher.Teacher(folder_of("roberta"), LABELS, torch.float32, teacher.Teaching())

    def test_the_command_trains_the_default_model_and_a_larger_base(self):
        """Both results are model folders, whose vectors are finite and differ from the base's."""
        labels = read_labels(REPOSITORY / "pipelines/sixteen-topics.toml")
        folder = Path(tempfile.mkdtemp(dir=ROOT))
        for name, names in (("known", ("",)), ("broad", [str(k) for k in range(6)])):
            rows = [
                post(n, f"{label.slug}{k}", label.slug, "text") for label in labels for k in names for n in range(2)
            ]
            (folder / name).write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
        rounds = tuple(replace(one, texts=64) for one in topics.ROUNDS)
        recipe = partial(topics.Recipe, rounds, batch=32, frozen=1)
        teaching = partial(teacher.Teaching, texts=64, frozen=1)
        for number, (base, more) in enumerate(
            [(SHIPPED, ["--teacher", folder_of("mpnet")]), (folder_of("mpnet"), ["--precision", "fp32"])]
        ):
            out = folder / f"out{number}"
            words = ["train_default.py", folder / "known", base, out, "--broad", folder / "broad", *more]
            with (
                mock.patch.object(topics, "Recipe", recipe),
                mock.patch.object(train_default, "Teaching", teaching),
                mock.patch.object(sys, "argv", [str(word) for word in words]),
                contextlib.redirect_stderr(io.StringIO()) as said,
            ):
                self.assertEqual(train_default.main(), 0)
            self.assertIn("subreddits left out: right", said.getvalue())
            vectors = Embedder(out).vectors(["soup"])
            self.assertTrue(np.isfinite(vectors).all())
            if base == SHIPPED:
                self.assertLess((vectors @ Embedder(SHIPPED).vectors(["soup"]).T).item(), 0.99999)


if __name__ == "__main__":
    unittest.main()
