"""Daft: python with_daft.py IN OUT labels Parquet files and writes the rows with a score of at least 0.7."""

import sys

import daft
import pyarrow as pa
from daft import DataType

from topicmill import Labeler

COLUMNS = {"label": DataType.string(), "score": DataType.float64(), "margin": DataType.float64()}


@daft.cls(max_concurrency=2, use_process=True)
class Labels:
    def __init__(self, **settings):
        self.labeler = Labeler(**settings)

    @daft.method.batch(return_dtype=DataType.struct(COLUMNS), unnest=True)
    def of(self, text):
        labeled = self.labeler(pa.record_batch({"text": text.to_arrow()}))
        return daft.Series.from_arrow(labeled.select(list(COLUMNS)).to_struct_array())


if __name__ == "__main__":
    source, target = sys.argv[1:]
    posts = daft.read_parquet(f"{source}/*.parquet")
    labels = Labels(labels=["cooking", "travel"], threads=1)
    labeled = posts.select("*", labels.of(posts["text"]))
    labeled.where("score >= 0.7").write_parquet(target)
