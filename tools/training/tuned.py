"""`--keep-zero-shot` after fine-tuning: the folder of the base with some of what its encoder learned.

In go the base and the Hugging Face folder of a fine-tuned classifier; out comes an embedding folder, from whose vectors
`keep.py` learns those of the labels. Only a share of the weights is new: with all of them, the model forgets labels that
it was not trained on.
"""

from pathlib import Path

from models.source import read_source
from training.shipped import read_shipped, write_shipped
from training.topics import mixed


def write_tuned(base: Path, trained: Path, share: float, folder: Path) -> None:
    """Write `folder` like `base`, each weight being `share` of the trained one and the rest of the base's."""
    model = read_shipped(base)
    before = {name: weight.clone() for name, weight in model.state_dict().items()}
    after = read_source(trained, "classifier").model.bert.state_dict()
    model.load_state_dict(mixed(before, after, share))
    write_shipped(model, base, folder)
