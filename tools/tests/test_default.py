"""Tests of training the default model: interpolation, output, and resuming."""

import json
import tempfile
import unittest
from dataclasses import replace
from pathlib import Path

import torch
from tokenizers import Tokenizer

from tests.support import ROOT
from training import topics
from training.posts import Row
from training.shipped import read_shipped, write_shipped
from training.words import Label

REPOSITORY = Path(__file__).resolve().parents[2]
SHIPPED = REPOSITORY / "models" / "minilm-reddit-topics"
LABELS = [
    Label("food", "food", ["This text is about food."]),
    Label("travel", "travel", ["This text is about travel.", "Trips."]),
]
ROWS = [Row("", "garlic soup", 0, ""), Row("", "night train to a lake", 1, "")] * 4


def trainer(precision: str = "no") -> topics.Trainer:
    """Two epochs of two steps."""
    recipe = replace(topics.Recipe(), frozen=4, epochs=2, batch=4, others=1, precision=precision)
    tokenizer = Tokenizer.from_file(str(SHIPPED / "tokenizer.json"))
    encoder = topics.Encoder(read_shipped(SHIPPED), tokenizer, recipe.frozen, recipe.tokens, precision)
    return topics.Trainer(encoder, LABELS, ROWS, ["This text is about chess."], recipe, lambda _: None)


class Default(unittest.TestCase):
    """Each part of train_default.py."""

    def test_a_folder_that_is_read_and_written_has_the_same_bytes(self):
        """The data is the same each time, so nothing but training changes the weights."""
        out = Path(tempfile.mkdtemp(dir=ROOT))
        write_shipped(read_shipped(SHIPPED), SHIPPED, out)
        for path in SHIPPED.iterdir():
            if path.name in ("model.onnx", "tokenizer.json"):
                self.assertEqual((out / path.name).read_bytes(), path.read_bytes(), path.name)
        config = json.loads((SHIPPED / "config.json").read_text(encoding="utf-8"))
        del config["zero_shot"]["label_vectors"]
        self.assertEqual((out / "config.json").read_text(encoding="utf-8"), json.dumps(config, indent=1))

    def test_the_same_seed_gives_the_same_weights(self):
        """The result is equal bit by bit, and the loss falls."""
        for precision in ("no", "bf16"):
            with self.subTest(precision):
                one, other = trainer(precision), trainer(precision)
                losses = [one.once()["loss"] for _ in range(4)]
                self.assertLess(losses[-1], losses[0])
                paths = other.run(Path(tempfile.mkdtemp(dir=ROOT)))
                self.assertEqual([path.name for path in paths], [f"weights-{step:05}.pt" for step in (1, 2, 3, 4)])
                for name, weight in one.encoder.model.state_dict().items():
                    self.assertTrue(torch.equal(weight, other.encoder.model.state_dict()[name]), name)

    def test_weights_are_averaged_and_mixed(self):
        """Numbers that are not weights stay."""
        one, two = ({"w": torch.tensor([value]), "n": torch.tensor(3)} for value in (1.0, 3.0))
        mean = topics.averaged([one, two])
        self.assertEqual((mean["w"].item(), mean["n"].item()), (2.0, 3))
        self.assertAlmostEqual(topics.mixed(one, mean, 0.6)["w"].item(), 1.6, places=5)

    def test_a_post_is_there_with_and_without_its_body_on_one_side(self):
        """A text counts once, however often it was posted."""
        posts = [
            {"title": f"soup {n}", "selftext": "[removed]" if n % 2 else "hot", "topic": "food"} for n in range(40)
        ]
        train, held = topics.rows_of([*posts, *posts], LABELS, 0.3)
        self.assertEqual(len(train) + len(held), 60)
        self.assertFalse({row.text[:7] for row in train if row.text[6:7] == "1"} & {row.text for row in held})


if __name__ == "__main__":
    unittest.main()
