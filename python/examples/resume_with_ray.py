"""Ray Data: python resume_with_ray.py IN OUT DONE labels a folder of Parquet, and goes on where a killed job stopped.

DONE is a folder in which Ray notes the ids of the rows that are in OUT. The same command again scores only the others.
"""

import os
import sys

import ray
from ray.data import ActorPoolStrategy, DataContext
from ray.data.checkpoint import CheckpointConfig

from topicmill import Labeler

if __name__ == "__main__":
    source, target, done = sys.argv[1:]
    # Ray wants a core each to list, to leave out what is noted, and to write. With fewer, its steps wait for each other for ever.
    ray.init(num_cpus=max(4, os.cpu_count() or 1))
    # The notes stay when the job is done, so that a further call has nothing to do.
    notes = CheckpointConfig(id_column="id", checkpoint_path=done, delete_checkpoint_on_success=False)
    DataContext.get_current().checkpoint_config = notes
    # What is under way when a job is killed is lost: blocks of so many rows.
    posts = ray.data.read_parquet(source).repartition(target_num_rows_per_block=128)
    labeled = posts.map_batches(
        Labeler,
        fn_constructor_kwargs={"labels": ["cooking", "travel"], "threads": 1},
        batch_format="pyarrow",
        batch_size=128,
        compute=ActorPoolStrategy(size=2),
        num_cpus=0.5,
    )
    # All rows: one that is filtered out before it is written would be scored again.
    labeled.write_parquet(target)
