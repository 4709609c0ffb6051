"""Dask: python with_dask.py IN OUT labels Parquet files and writes the rows with a score of at least 0.7."""

import sys

import dask.dataframe as dd
from distributed import Client

import topicmill.dask

if __name__ == "__main__":
    source, target = sys.argv[1:]
    with Client(n_workers=2, threads_per_worker=1):
        posts = dd.read_parquet(source)
        labeled = topicmill.dask.label(posts, text="text", labels=["cooking", "travel"])
        labeled[labeled["score"] >= 0.7].to_parquet(target, write_index=False)
