from collections.abc import Mapping
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

__version__: str

def joined(parts: list[str], is_reddit: bool) -> str:
    """Joins the parts of a text with blank lines, without placeholders for removed parts."""

def read_pipeline(text: str, path: str) -> tuple[str, list[str]]:
    """Returns the text of an equivalent pipeline file that names no other file, and the slugs of the labels."""

class Error(RuntimeError):
    """The model or the inference library cannot be used, or a text cannot be scored; the message says how to fix it."""

@final
class Scorer:
    """A model with prepared labels. Immutable and thread-safe; concurrent calls wait for each other."""

    def __new__(cls, settings: Mapping[str, Any]) -> Scorer: ...
    def score(
        self, texts: object, with_scores: bool, with_logits: bool, reddit_text: bool, interruptible: bool
    ) -> tuple[
        NDArray[np.int32],
        NDArray[np.float64],
        NDArray[np.float64],
        NDArray[np.float32] | None,
        NDArray[np.float32] | None,
        list[tuple[int, str]],
    ]: ...
    def vectors(
        self, texts: object, reddit_text: bool, interruptible: bool
    ) -> tuple[NDArray[np.float32], list[tuple[int, str]]]: ...
    @property
    def process(self) -> int: ...
    @property
    def labels(self) -> list[str]: ...
    @property
    def model(self) -> str: ...
    @property
    def model_hash(self) -> str: ...
    @property
    def kind(self) -> str: ...
    @property
    def precision(self) -> str: ...
    @property
    def device(self) -> str: ...
    @property
    def reason(self) -> str: ...
    @property
    def engine(self) -> str: ...
    @property
    def threads(self) -> int: ...
