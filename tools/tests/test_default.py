"""Tests of training the default model: posts, targets, steps, interpolation and output."""

import gzip
import json
import tempfile
import unittest
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from tokenizers import Tokenizer

from tests.support import ROOT
from training import subreddits, teacher, topics
from training.packed import Packed
from training.shipped import read_shipped, write_shipped
from training.vectors import unit
from training.words import Label

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
    stage = replace(topics.STAGES[0], texts=14)
    posts = some_posts()
    weights = subreddits.weights_of(posts, np.zeros(len(posts.ids), bool), 0.5, 4.0)
    targets = np.eye(2, dtype=np.float32)[posts.labels]
    others = ["This text is about chess."]
    return topics.Trainer(
        read_shipped(SHIPPED), tokenizer(), LABELS, posts, weights, targets, others, recipe, stage, lambda _: None
    )


class Default(unittest.TestCase):
    """Each part of train_default.py."""

    def test_a_folder_that_is_read_and_written_has_the_same_bytes(self):
        """Reading and writing change no weight; only training does."""
        out = Path(tempfile.mkdtemp(dir=ROOT))
        write_shipped(read_shipped(SHIPPED), SHIPPED, out)
        for path in SHIPPED.iterdir():
            if path.name in ("model.onnx", "tokenizer.json"):
                self.assertEqual((out / path.name).read_bytes(), path.read_bytes(), path.name)
        config = json.loads((SHIPPED / "config.json").read_text(encoding="utf-8"))
        del config["zero_shot"]["label_vectors"]
        self.assertEqual((out / "config.json").read_text(encoding="utf-8"), json.dumps(config, indent=1))

    def test_the_same_seed_gives_the_same_weights(self):
        """The weights are equal to the last bit and are stored after each step; only the last two layers change."""
        for dtype in (torch.float32, torch.bfloat16):
            with self.subTest(dtype):
                one, other = trainer(dtype), trainer(dtype)
                before = {name: weight.clone() for name, weight in one.model.state_dict().items()}
                for _ in range(one.steps):
                    one.once()
                paths = other.run(Path(tempfile.mkdtemp(dir=ROOT)))
                self.assertEqual([path.name for path in paths], [f"weights-{step:05}.pt" for step in (1, 2, 3)])
                moved = set()
                for name, weight in one.model.state_dict().items():
                    self.assertTrue(torch.equal(weight, other.model.state_dict()[name]), name)
                    if not torch.equal(weight, before[name]):
                        moved.add(name.split(".")[2] if name.startswith("encoder") else name)
                self.assertEqual(moved, {"4", "5"})

    def test_packed_layers_return_the_networks_vectors(self):
        """Texts of different lengths, from ids or from the states of a lower layer; bf16 differs little."""
        model, texts = read_shipped(SHIPPED), ["soup", "night train to a lake " * 9, "a", "garlic and onion soup"]
        ids = topics.encoded(tokenizer(), texts, 128)
        with torch.no_grad():
            wanted = []
            for row in ids:
                states = model(input_ids=torch.tensor([row])).last_hidden_state[0]
                wanted.append(torch.nn.functional.normalize(states.mean(0), dim=0))
            packed = Packed(model, torch.float32)
            vectors, states = packed.embed(ids, 3)
            again = packed.upper(states, 3)
            rounded, _ = Packed(model, torch.bfloat16).embed(ids)
        torch.testing.assert_close(vectors, torch.stack(wanted), atol=1e-5, rtol=0)
        torch.testing.assert_close(again, vectors, atol=1e-5, rtol=0)
        self.assertGreater((rounded * vectors).sum(1).min().item(), 0.999)

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
        order = topics.drawn(weights, 1000, 0.5, np.random.default_rng(1))
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

    def test_teachers_soften_a_topic_that_both_doubt(self):
        """One subreddit is really about the other topic: only the teachers determine its target."""
        posts = some_posts()
        numbers = np.random.default_rng(0)
        truth = np.where(posts.subreddits == "food3", 1, posts.labels)
        words = np.eye(2, 8)
        view = teacher.View(unit(words[truth] + 0.02 * numbers.normal(size=(len(truth), 8))).astype(np.float32), words)
        weights = subreddits.weights_of(posts, np.zeros(len(truth), bool), 0.5, 4.0)
        targets = teacher.targets_of(posts, weights, view, view, teacher.Teaching())
        np.testing.assert_allclose(targets.sum(1), 1, atol=1e-5)
        self.assertTrue((targets[posts.subreddits == "food3", 1] > 0.9).all())
        self.assertTrue((targets[posts.subreddits == "food1", 0] > 0.9).all())

    def test_all_posts_of_a_subreddit_are_in_one_part(self):
        """No teacher is trained on the subreddit whose posts it scores."""
        posts = some_posts()
        parts = teacher.parts_of(posts)
        for name in set(posts.subreddits[~posts.known]):
            self.assertEqual(len(set(parts[posts.subreddits == name])), 1)
        self.assertGreater(len(set(parts)), 1)


if __name__ == "__main__":
    unittest.main()
