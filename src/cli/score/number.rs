//! Which shard this process scores: flags and what a scheduler of machines puts into the environment go in, a number comes
//! out.
//!
//! Shards count from 1. A Kubernetes indexed Job says its index, from 0, in `JOB_COMPLETION_INDEX`, and does not say how
//! many there are (<https://kubernetes.io/docs/tasks/job/indexed-parallel-processing-static/>). An array of SLURM says its
//! number, and where the array begins and ends (<https://slurm.schedmd.com/job_array.html>).

use crate::files::shards::Shard;

/// A shard, and where its number came from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Numbered {
    pub(super) shard: Shard,
    /// For people; nothing where there is one shard only, because nobody asked for more.
    pub(super) from: Option<String>,
}

/// `3/100` as a shard.
pub(super) fn shard(given: &str) -> Result<Shard, String> {
    let parts = given.split_once('/');
    let parsed = parts.and_then(|(index, count)| {
        Some(Shard {
            index: index.trim().parse().ok()?,
            count: count.trim().parse().ok()?,
        })
    });
    let shard = parsed
        .ok_or("write it as the number of the shard, from 1, and how many there are: 3/100")?;
    if shard.count == 0 {
        return Err("there are no shards: write 1/1 for all rows".to_owned());
    }
    if shard.index == 0 || shard.index > shard.count {
        return Err(format!(
            "there is no shard {}: they count from 1 to {}",
            shard.index, shard.count
        ));
    }
    Ok(shard)
}

/// The shard of this process. `get`: a variable of the environment.
pub(super) fn numbered(
    flag: Option<Shard>,
    count: Option<u32>,
    get: impl Fn(&str) -> Option<String>,
) -> Result<Numbered, String> {
    if let Some(shard) = flag {
        return Ok(Numbered {
            shard,
            from: Some("--shard".to_owned()),
        });
    }
    let number = |name: &str| {
        let text = get(name).filter(|text| !text.trim().is_empty());
        text.map(|text| {
            let number = text.trim().parse::<u32>();
            number.map_err(|_| format!("{name} is `{text}`, which is no number; set --shard I/N"))
        })
        .transpose()
    };
    let index = number("JOB_COMPLETION_INDEX")?;
    let task = number("SLURM_ARRAY_TASK_ID")?;
    match (index, task) {
        (Some(_), Some(_)) => Err(
            "both JOB_COMPLETION_INDEX and SLURM_ARRAY_TASK_ID are set, and each may mean another shard: set --shard I/N"
                .to_owned(),
        ),
        (Some(index), None) => of_kubernetes(index, count.map_or_else(|| number("JOB_COMPLETIONS"), |n| Ok(Some(n)))?),
        (None, Some(task)) => of_slurm(task, count, &number),
        (None, None) => match count {
            None | Some(1) => Ok(Numbered {
                shard: Shard { index: 1, count: 1 },
                from: None,
            }),
            Some(count) => Err(format!(
                "nobody says which of {count} shards this is: use `--shard 1/{count}`, or run it where \
                 JOB_COMPLETION_INDEX or SLURM_ARRAY_TASK_ID is set"
            )),
        },
    }
}

fn found(index: u32, count: u32, from: String) -> Result<Numbered, String> {
    if index == 0 || index > count {
        return Err(format!(
            "{from} means shard {index}, and shards count from 1 to {count}: start as many as there are shards"
        ));
    }
    Ok(Numbered {
        shard: Shard { index, count },
        from: Some(from),
    })
}

fn of_kubernetes(index: u32, count: Option<u32>) -> Result<Numbered, String> {
    let from = format!("JOB_COMPLETION_INDEX={index}");
    let count = count.ok_or_else(|| {
        format!(
            "{from} says which shard this is, from 0, and nobody says how many there are: use `--shards N` with the \
             completions of the Job, or set JOB_COMPLETIONS"
        )
    })?;
    found(index.saturating_add(1), count, from)
}

fn of_slurm(
    task: u32,
    count: Option<u32>,
    number: &dyn Fn(&str) -> Result<Option<u32>, String>,
) -> Result<Numbered, String> {
    let from = format!("SLURM_ARRAY_TASK_ID={task}");
    let (first, last) = (
        number("SLURM_ARRAY_TASK_MIN")?,
        number("SLURM_ARRAY_TASK_MAX")?,
    );
    if let Some(count) = count {
        // Some of an array may be run again, so its begin and its size say nothing of the shards.
        if first == Some(0) || task == 0 {
            return Err(format!(
                "{from} is of an array that begins at 0, and shards count from 1: use `--array=1-{count}`"
            ));
        }
        return found(task, count, from);
    }
    let tasks = number("SLURM_ARRAY_TASK_COUNT")?;
    let (Some(first), Some(tasks)) = (first, tasks) else {
        return Err(format!(
            "{from} says which shard this is, and nobody says how many there are: use `--shards N`"
        ));
    };
    let is_whole = first <= 1 && last.is_none_or(|last| last - first.min(last) + 1 == tasks);
    if !is_whole {
        return Err(format!(
            "the array of {from} is not 0-{} nor 1-{tasks}, so it does not say how many shards there are: use `--shards N`",
            tasks.saturating_sub(1)
        ));
    }
    found(task.saturating_sub(first).saturating_add(1), tasks, from)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(count: Option<u32>, variables: &[(&str, &str)]) -> Result<(u32, u32), String> {
        let get = |name: &str| {
            let found = variables.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| (*value).to_owned())
        };
        numbered(None, count, get).map(|found| (found.shard.index, found.shard.count))
    }

    #[test]
    fn shards_count_from_one() {
        assert_eq!(
            shard("3/100"),
            Ok(Shard {
                index: 3,
                count: 100
            })
        );
        for wrong in ["0/3", "4/3", "3", "a/b", "1/0", "-1/3", ""] {
            assert!(shard(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_index_of_a_job_counts_from_nought_and_needs_a_count() {
        let index = ("JOB_COMPLETION_INDEX", "2");
        assert_eq!(of(Some(5), &[index]), Ok((3, 5)));
        assert_eq!(of(None, &[index, ("JOB_COMPLETIONS", "4")]), Ok((3, 4)));
        assert_eq!(of(Some(5), &[index, ("JOB_COMPLETIONS", "4")]), Ok((3, 5)));
        assert!(of(None, &[index]).unwrap_err().contains("--shards N"));
        assert!(of(Some(2), &[index]).unwrap_err().contains("from 1 to 2"));
        assert!(of(Some(2), &[("JOB_COMPLETION_INDEX", "two")]).is_err());
        let both = [index, ("SLURM_ARRAY_TASK_ID", "1")];
        assert!(of(Some(5), &both).unwrap_err().contains("--shard I/N"));
    }

    #[test]
    fn an_array_says_its_begin_and_its_size() {
        let array = |id, min, max, count| {
            [
                ("SLURM_ARRAY_TASK_ID", id),
                ("SLURM_ARRAY_TASK_MIN", min),
                ("SLURM_ARRAY_TASK_MAX", max),
                ("SLURM_ARRAY_TASK_COUNT", count),
            ]
        };
        assert_eq!(of(None, &array("0", "0", "9", "10")), Ok((1, 10)));
        assert_eq!(of(None, &array("9", "0", "9", "10")), Ok((10, 10)));
        assert_eq!(of(None, &array("10", "1", "10", "10")), Ok((10, 10)));
        // Two of ten again: only the flag says how many there are.
        let again = array("7", "3", "7", "2");
        assert!(of(None, &again).unwrap_err().contains("--shards N"));
        assert_eq!(of(Some(10), &again), Ok((7, 10)));
        assert!(of(Some(10), &array("0", "0", "9", "10")).is_err());
        assert!(of(Some(10), &array("4", "0", "9", "10")).is_err());
        // Every second one.
        assert!(of(None, &array("3", "1", "9", "5")).is_err());
        assert_eq!(of(Some(10), &[("SLURM_ARRAY_TASK_ID", "4")]), Ok((4, 10)));
        assert!(of(None, &[("SLURM_ARRAY_TASK_ID", "4")]).is_err());
    }

    #[test]
    fn without_a_word_there_is_one_shard() {
        assert_eq!(of(None, &[]), Ok((1, 1)));
        assert!(of(Some(3), &[]).unwrap_err().contains("--shard 1/3"));
    }
}
