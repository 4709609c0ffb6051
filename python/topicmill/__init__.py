"""Zero-shot labels for texts, computed by ONNX Runtime in batches.

>>> from topicmill import Labeler
>>> labeler = Labeler(labels=["cooking", "travel"])
>>> labeler.label("My sourdough starter died.")["labels"][0]
'cooking'

`Labeler` scores lists of texts, and tables from pyarrow, pandas, polars and numpy. It can be pickled, so it works in
Dask, Ray Data, Spark and Daft. The `topicmill` program comes with the package and computes the same scores.
"""

from topicmill._labeler import Labeler, Labels, Scored
from topicmill._native import Error, __version__

__all__ = ["Error", "Labeler", "Labels", "Scored", "__version__"]
