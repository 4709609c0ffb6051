"""Ray Data: python with_ray.py IN OUT labels Parquet files and writes the rows with a score of at least 0.7."""

import sys

import ray
from ray.data import ActorPoolStrategy

from topicmill import Labeler

if __name__ == "__main__":
    source, target = sys.argv[1:]
    posts = ray.data.read_parquet(source)
    settings = {"labels": ["cooking", "travel"], "threads": 1}
    # Each actor uses half a core, which leaves one of two cores for writing.
    labeled = posts.map_batches(
        Labeler,
        fn_constructor_kwargs=settings,
        batch_format="pyarrow",
        compute=ActorPoolStrategy(size=2),
        num_cpus=0.5,
    )
    labeled.filter(expr="score >= 0.7").write_parquet(target)
