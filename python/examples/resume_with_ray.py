"""Ray Data: python resume_with_ray.py IN OUT DONE labels a folder of Parquet files and can resume after a crash.

DONE is a checkpoint folder, in which Ray stores the ids of the rows in OUT. Run the same command again to score the
rest.
"""

import os
import sys

import ray
from ray.data import ActorPoolStrategy, DataContext
from ray.data.checkpoint import CheckpointConfig

from topicmill import Labeler

if __name__ == "__main__":
    source, target, done = sys.argv[1:]
    # Ray needs a core each to list files, to filter checkpointed rows and to write. With fewer cores, these deadlock.
    ray.init(num_cpus=max(4, os.cpu_count() or 1))
    # Keep checkpoints after the job, so that another run has nothing to do.
    checkpoints = CheckpointConfig(id_column="id", checkpoint_path=done, delete_checkpoint_on_success=False)
    DataContext.get_current().checkpoint_config = checkpoints
    # A killed job loses the blocks in progress; a block has this many rows.
    posts = ray.data.read_parquet(source).repartition(target_num_rows_per_block=128)
    labeled = posts.map_batches(
        Labeler,
        fn_constructor_kwargs={"labels": ["cooking", "travel"], "threads": 1},
        batch_format="pyarrow",
        batch_size=128,
        compute=ActorPoolStrategy(size=2),
        num_cpus=0.5,
    )
    # Write all rows: a row that is filtered out would be scored again.
    labeled.write_parquet(target)
