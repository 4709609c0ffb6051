//! What a folder of shards says of itself: what work it holds, and which of its shards are whole.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use super::plan::Plan;
use super::{Shard, ShardJob};
use crate::files::FilesError;
use crate::files::filter::Filter;
use crate::files::inputs::Segment;
use crate::files::shelf::{Holder, Shelf};
use topicmill_score::{LabelSet, hex};

/// Where the descriptions are. Programs that read a folder of Parquet pass over names that begin like this.
pub(super) const FOLDER: &str = "_topicmill";

/// What the whole folder is.
pub(super) const PLAN: &str = "_topicmill/plan.json";

/// Characters of a hash that tell two works apart in one folder.
const SHORT: usize = 12;

/// A name for people, and a hash that tells it from others.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Named {
    /// The name.
    pub name: String,
    /// The hash.
    pub hash: String,
}

/// An input, as the plan has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct InputMark {
    name: String,
    bytes: u64,
    rows: u64,
    digest: String,
}

/// The work that a folder holds. Two runs that agree on all of it write shards that belong together.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Work {
    /// A hash of all that follows.
    pub(super) plan: String,
    pub(super) topicmill: String,
    pub(super) shards: u32,
    pub(super) rows: u64,
    pub(super) model: Named,
    pub(super) labels: Named,
    pub(super) settings: Map<String, Value>,
    pub(super) inputs: Vec<InputMark>,
}

impl Work {
    pub(super) fn of(job: &ShardJob, plan: &Plan, model: Named, set: &LabelSet) -> Self {
        let mark = |planned: &super::plan::Planned| InputMark {
            name: planned.input.name.clone(),
            bytes: planned.input.size,
            rows: planned.rows,
            digest: planned.digest.clone(),
        };
        let mut work = Self {
            plan: String::new(),
            // Another version may write other lines.
            topicmill: env!("CARGO_PKG_VERSION").to_owned(),
            shards: job.shard.count,
            rows: plan.rows,
            model,
            labels: Named {
                name: set.name.clone(),
                hash: set.hash(),
            },
            settings: settings(job),
            inputs: plan.inputs.iter().map(mark).collect(),
        };
        // The names are for people: the same labels may come from a file and from flags.
        let content = json!([
            work.topicmill,
            work.shards,
            work.model.hash,
            work.labels.hash,
            work.settings,
            work.inputs
        ]);
        work.plan = hex(&Sha256::digest(content.to_string()));
        work
    }

    /// The beginning of its hash.
    pub(super) fn short(&self) -> &str {
        &self.plan[..SHORT]
    }

    /// The first thing in which other work differs.
    pub(super) fn difference(&self, other: &Self) -> Option<String> {
        if self.plan == other.plan {
            return None;
        }
        let named = |what: &str, ours: &Named, theirs: &Named| {
            (ours.hash != theirs.hash).then(|| {
                let short = |named: &Named| {
                    let hash: String = named.hash.chars().take(SHORT).collect();
                    format!("`{}` ({hash})", named.name)
                };
                format!("{what} {}, and not {}", short(theirs), short(ours))
            })
        };
        let version = || {
            (self.topicmill != other.topicmill)
                .then(|| format!("version {} of topicmill", other.topicmill))
        };
        let shards = || {
            (self.shards != other.shards)
                .then(|| format!("{} shards, and not {}", other.shards, self.shards))
        };
        let settings = || {
            let keys = self.settings.keys();
            let mut other_values =
                keys.filter(|key| self.settings.get(*key) != other.settings.get(*key));
            let key = other_values.next()?;
            let of = |work: &Self| match work.settings.get(key) {
                None | Some(Value::Null) => format!("no {key}"),
                Some(value) => format!("{key} {value}"),
            };
            Some(format!("{}, and not {}", of(other), of(self)))
        };
        let found = version()
            .or_else(|| named("the model", &self.model, &other.model))
            .or_else(|| named("the labels", &self.labels, &other.labels))
            .or_else(|| self.other_inputs(other))
            .or_else(shards)
            .or_else(settings);
        Some(found.unwrap_or_else(|| "something else".to_owned()))
    }

    fn other_inputs(&self, other: &Self) -> Option<String> {
        let named =
            |work: &Self, name: &str| work.inputs.iter().find(|input| input.name == name).cloned();
        for input in &self.inputs {
            let name = &input.name;
            match named(other, name) {
                None => return Some(format!("inputs without `{name}`")),
                Some(theirs) if theirs != *input => {
                    return Some(format!(
                        "an input `{name}` with {} rows in {} bytes, and not with {} rows in {} bytes",
                        theirs.rows, theirs.bytes, input.rows, input.bytes
                    ));
                }
                Some(_) => {}
            }
        }
        let mut theirs = other.inputs.iter();
        match theirs.find(|input| named(self, &input.name).is_none()) {
            Some(more) => Some(format!("an input `{}` more", more.name)),
            None => (self.inputs != other.inputs).then(|| "the inputs in another order".to_owned()),
        }
    }

    /// What the folder holds, if it holds anything.
    pub(super) fn in_folder(shelf: &dyn Shelf) -> Result<Option<Self>, FilesError> {
        read(shelf, PLAN)
    }
}

/// What of the flags decides the output.
fn settings(job: &ShardJob) -> Map<String, Value> {
    let (reading, writing) = (&job.job.reading, &job.job.writing);
    let labels = reading.labels.as_ref();
    let all = json!({
        "--text": reading.text,
        "--id": reading.id,
        "--labels-column": labels.map(|labels| &labels.column),
        "--labels-separator": labels.map(|labels| labels.separator),
        "--label-scores": writing.label_scores,
        "--drop-columns": writing.drop_columns,
        "--where": writing.filter.as_ref().map(Filter::to_string),
        "--row-group-rows": job.row_group_rows,
    });
    match all {
        Value::Object(all) => all,
        _ => unreachable!("it is written as an object"),
    }
}

/// A file of JSON. One that is none was written by somebody else.
pub(super) fn read<T: for<'a> Deserialize<'a>>(
    shelf: &dyn Shelf,
    name: &str,
) -> Result<Option<T>, FilesError> {
    let Some(content) = shelf.read(name)? else {
        return Ok(None);
    };
    serde_json::from_slice(&content)
        .map(Some)
        .map_err(|error| FilesError::NoManifest {
            shown: shelf.shown(name),
            why: error.to_string(),
        })
}

/// Rows of a shard.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RowCounts {
    /// Read from the inputs.
    pub read: u64,
    /// In the output.
    pub written: u64,
    /// Of `read`, those that could not be scored.
    pub failed: u64,
    /// Of `read`, those that the condition left out.
    pub left_out: u64,
}

/// Part of an input that a shard read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Part {
    name: String,
    bytes: u64,
    /// What changes when the file does, see [`Input::version`](crate::files::inputs::Input::version).
    version: String,
    first_row: u64,
    rows: u64,
}

/// What a whole shard says of itself. It is written last, so whoever finds it finds the output whole.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    /// The work that it belongs to.
    pub(super) plan: String,
    pub(super) shard: u32,
    pub(super) shards: u32,
    /// The name of the output.
    pub output: String,
    pub(super) bytes: u64,
    pub(super) sha256: String,
    /// Its rows.
    pub rows: RowCounts,
    pub(super) model: Named,
    pub(super) labels: Named,
    pub(super) topicmill: String,
    pub(super) inputs: Vec<Part>,
    pub(super) by: Holder,
}

/// What a shard wrote.
pub(super) struct Written {
    /// Where it is until it has its name.
    pub(super) draft: PathBuf,
    pub(super) bytes: u64,
    pub(super) sha256: String,
    pub(super) rows: RowCounts,
}

impl Manifest {
    pub(super) fn of(
        work: &Work,
        shard: Shard,
        segments: &[Segment],
        written: Written,
        by: &Holder,
    ) -> Self {
        let part = |segment: &Segment| Part {
            name: segment.input.name.clone(),
            bytes: segment.input.size,
            version: segment.input.version.clone(),
            first_row: segment.rows.start,
            rows: segment.rows.end - segment.rows.start,
        };
        Self {
            plan: work.plan.clone(),
            shard: shard.index,
            shards: shard.count,
            output: output_name(shard),
            bytes: written.bytes,
            sha256: written.sha256,
            rows: written.rows,
            model: work.model.clone(),
            labels: work.labels.clone(),
            topicmill: crate::VERSION.to_owned(),
            inputs: segments.iter().map(part).collect(),
            by: by.clone(),
        }
    }

    /// That of a shard, if it is there.
    pub(super) fn of_shard(shelf: &dyn Shelf, shard: Shard) -> Result<Option<Self>, FilesError> {
        read(shelf, &manifest_name(shard))
    }
}

fn stem(shard: Shard) -> String {
    format!("part-{:05}-of-{:05}", shard.index, shard.count)
}

/// The name of a shard's output.
pub(super) fn output_name(shard: Shard) -> String {
    format!("{}.parquet", stem(shard))
}

/// The name of a shard's manifest.
pub(super) fn manifest_name(shard: Shard) -> String {
    format!("{FOLDER}/{}.json", stem(shard))
}

/// The name of the output while it is written.
pub(super) fn draft_name(shard: Shard, work: &Work) -> String {
    format!("{FOLDER}/{}.{}.draft", stem(shard), work.short())
}

/// The name of what was scored of a shard so far. Another plan has another one.
pub(super) fn journal_name(shard: Shard, work: &Work) -> String {
    format!("{FOLDER}/{}.{}.ndjson", stem(shard), work.short())
}

/// Whether a file may be an output of ours.
pub(super) fn is_output_name(name: &str) -> bool {
    let number = |text: &str| text.len() >= 5 && text.bytes().all(|byte| byte.is_ascii_digit());
    let numbers = name
        .strip_prefix("part-")
        .and_then(|rest| rest.strip_suffix(".parquet"))
        .and_then(|rest| rest.split_once("-of-"));
    numbers.is_some_and(|(index, count)| number(index) && number(count))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_outputs_are_told_from_others() {
        let shard = Shard {
            index: 3,
            count: 100,
        };
        assert_eq!(output_name(shard), "part-00003-of-00100.parquet");
        assert!(is_output_name(&output_name(shard)));
        for other in ["part-00003.parquet", "part-00003-of-x.parquet", "a.parquet"] {
            assert!(!is_output_name(other), "{other}");
        }
    }
}
