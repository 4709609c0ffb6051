//! Defines the counts of a run. `runs.counts` stores them as one JSON object with the fields of the stage.

use std::collections::BTreeMap;
use std::ops::AddAssign;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{ClassifyCounts, Traffic};
use crate::{PurgeReason, Rejections, Stage, ThingKind, Timestamp, TopicReport};

/// The counts of a run, by stage.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[serde(untagged)]
pub enum RunCounts {
    /// Posts collected from a source.
    Collect(Box<CollectCounts>),
    /// Posts imported from files, or fetched by id.
    Import(Box<ImportCounts>),
    /// Posts labelled.
    Classify(Box<ClassifyCounts>),
    /// Posts purged.
    Purge(Box<PurgeCounts>),
    /// No readable counts: the run is not finished, was killed, or was recorded by an earlier version.
    #[default]
    Unknown,
}

impl RunCounts {
    /// Reads the counts of a run record. Missing and unknown fields are ignored, so that records from other versions
    /// can be read.
    pub fn read(stage: Stage, counts: &Value) -> Self {
        let read = match stage {
            Stage::Collect => Deserialize::deserialize(counts).map(Self::Collect),
            Stage::Import => Deserialize::deserialize(counts).map(Self::Import),
            Stage::Classify => Deserialize::deserialize(counts).map(Self::Classify),
            Stage::Purge => Deserialize::deserialize(counts).map(Self::Purge),
        };
        read.unwrap_or_default()
    }

    /// Returns the number of topics by outcome, for a collect run.
    pub fn outcomes(&self) -> Option<&BTreeMap<String, u64>> {
        match self {
            Self::Collect(done) => Some(&done.by_outcome),
            _ => None,
        }
    }
}

/// Counts of upserted posts. All but `edited` and crossposts in `purged` add up to the number of distinct posts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Upserted {
    /// Posts that were not stored before.
    pub new: u64,
    /// Stored posts with any change: text, topic, score, flair and so on.
    pub changed: u64,
    /// Changed posts with new text, which are scored again.
    pub edited: u64,
    /// Stored posts that the source reported as deleted or removed, and their crossposts, which were purged.
    pub purged: u64,
    /// Posts with a tombstone, which are not stored again.
    pub tombstoned: u64,
    /// Stored posts without a change.
    #[serde(skip)]
    pub unchanged: u64,
}

impl AddAssign for Upserted {
    fn add_assign(&mut self, other: Self) {
        self.new += other.new;
        self.changed += other.changed;
        self.edited += other.edited;
        self.purged += other.purged;
        self.tombstoned += other.tombstoned;
        self.unchanged += other.unchanged;
    }
}

/// The counts of a collect run.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct CollectCounts {
    /// Topics started.
    pub topics: u64,
    /// Topics by outcome.
    pub by_outcome: BTreeMap<String, u64>,
    /// Pages read.
    pub pages: u64,
    /// Posts and comments received and stored, counted once for each topic.
    pub posts: u64,
    /// The comments among them.
    pub comments: u64,
    /// Changes to the stored posts.
    #[serde(flatten)]
    pub stored: Upserted,
    /// Records that are not posts, or are incomplete.
    #[serde(flatten, with = "rejected")]
    pub rejected: Rejections,
    /// The creation time of the archive's newest post, if the run read an archive.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub archive_newest_at: Option<Timestamp>,
    /// Traffic to each source, keyed by the source's section in the settings.
    #[serde(flatten, deserialize_with = "traffic_of")]
    pub traffic: BTreeMap<String, Traffic>,
}

impl CollectCounts {
    /// Sums the reports of all topics.
    pub fn sum(reports: &[TopicReport]) -> Self {
        let mut sum = Self {
            topics: reports.len() as u64,
            ..Self::default()
        };
        for report in reports {
            let outcome = report.outcome.as_str().to_owned();
            *sum.by_outcome.entry(outcome).or_default() += 1;
            sum.pages += report.pages;
            sum.posts += report.posts;
            if report.kind() == ThingKind::Comment {
                sum.comments += report.posts;
            }
            sum.stored += report.stored;
            sum.rejected.extend(&report.rejected);
        }
        sum
    }
}

/// Keeps the unknown fields that parse as traffic.
fn traffic_of<'de, D: serde::Deserializer<'de>>(
    from: D,
) -> Result<BTreeMap<String, Traffic>, D::Error> {
    let fields = BTreeMap::<String, Value>::deserialize(from)?.into_iter();
    let traffic =
        fields.filter_map(|(name, value)| Some((name, Traffic::deserialize(value).ok()?)));
    Ok(traffic.collect())
}

/// Serialises rejections as two fields: the total, and the counts by reason.
mod rejected {
    use super::{Deserialize, Rejections, Serialize};

    #[derive(Default, Serialize, Deserialize)]
    #[serde(default)]
    struct Fields {
        rejected: u64,
        rejected_for: Rejections,
    }

    pub fn serialize<S: serde::Serializer>(counts: &Rejections, to: S) -> Result<S::Ok, S::Error> {
        let fields = Fields {
            rejected: counts.total(),
            rejected_for: counts.clone(),
        };
        fields.serialize(to)
    }

    pub fn deserialize<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Rejections, D::Error> {
        Ok(Fields::deserialize(from)?.rejected_for)
    }
}

/// The counts of an import run. Posts are read from a file, or fetched from a source by the ids in a file.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ImportCounts {
    /// Records that are posts or comments.
    pub posts: u64,
    /// The comments among them.
    pub comments: u64,
    /// Changes to the stored posts.
    #[serde(flatten)]
    pub stored: Upserted,
    /// Records whose topic in the file differs from the topic that lists their subreddit.
    pub topics_differ: u64,
    /// Records excluded by the filters, or by the keywords of the topics that list their subreddits.
    pub left_out: u64,
    /// Ids that were not requested, because their posts were already stored.
    pub known: u64,
    /// Posts requested from the source.
    pub asked: u64,
    /// Posts deleted by their authors.
    pub deleted: u64,
    /// Posts removed by moderators or Reddit.
    pub removed: u64,
    /// Posts that the source does not return.
    pub missing: u64,
    /// Posts whose state is unclear from the source's response.
    pub unclear: u64,
    /// Requests to the source.
    pub requests: u64,
    /// Records that are not posts, or are incomplete.
    #[serde(flatten, with = "rejected")]
    pub rejected: Rejections,
    /// Traffic to each source, keyed by the source's section in the settings.
    #[serde(flatten, deserialize_with = "traffic_of")]
    pub traffic: BTreeMap<String, Traffic>,
}

impl ImportCounts {
    /// Adds the counts of another file.
    pub fn add(&mut self, other: &Self) {
        self.posts += other.posts;
        self.comments += other.comments;
        self.stored += other.stored;
        self.topics_differ += other.topics_differ;
        self.left_out += other.left_out;
        self.rejected.extend(&other.rejected);
    }
}

/// The counts of a purge run.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct PurgeCounts {
    /// Posts checked on Reddit.
    pub checked: u64,
    /// Posts removed from the store. The next four fields also count posts that were not stored.
    pub purged: u64,
    /// Posts deleted by their authors.
    pub deleted: u64,
    /// Posts removed by moderators or Reddit.
    pub removed: u64,
    /// Posts that Reddit no longer returns.
    pub missing: u64,
    /// Posts purged on request.
    pub requested: u64,
    /// Crossposts purged with their parents; not included in `purged`.
    pub crossposts: u64,
    /// Gold labels deleted with their posts.
    pub gold: u64,
    /// Posts whose text was removed by retention.
    pub texts: u64,
    /// Posts among these without a current label, which they can no longer get.
    pub texts_unlabelled: u64,
    /// Posts whose state is unclear from Reddit's response. The next run checks them first.
    pub unclear: u64,
    /// Requests to Reddit.
    pub requests: u64,
    /// Posts not checked yet when a budget or a signal ended the run.
    pub left: u64,
    /// True if all posts in the database have been checked.
    pub reconciled: bool,
    /// True if purged bytes may still be in the database files.
    pub lingers: bool,
    /// Traffic to each source, keyed by the source's section in the settings.
    #[serde(flatten, deserialize_with = "traffic_of")]
    pub traffic: BTreeMap<String, Traffic>,
}

impl PurgeCounts {
    /// Counts a purged post by its reason.
    pub fn count(&mut self, reason: PurgeReason) {
        match reason {
            PurgeReason::Deleted => self.deleted += 1,
            PurgeReason::Removed => self.removed += 1,
            PurgeReason::Missing => self.missing += 1,
            PurgeReason::Requested => self.requested += 1,
            // The store counts crossposts.
            PurgeReason::ParentPurged => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn run_records_of_all_stages_round_trip() {
        let mut rejected = Rejections::default();
        rejected.add(&"a comment, not a post".into());
        let traffic = Traffic {
            by_status: BTreeMap::from([(200, 2), (429, 1)]),
            smaller: Some(1),
            ..Traffic::default()
        };
        let collected = CollectCounts {
            by_outcome: BTreeMap::from([("ok".into(), 2)]),
            rejected: rejected.clone(),
            traffic: BTreeMap::from([("arctic_shift".into(), traffic.clone())]),
            ..CollectCounts::default()
        };
        let imported = ImportCounts {
            rejected,
            traffic: BTreeMap::from([("reddit".into(), traffic)]),
            ..ImportCounts::default()
        };
        for (stage, counts) in [
            (Stage::Collect, RunCounts::Collect(collected.into())),
            (Stage::Import, RunCounts::Import(imported.into())),
            (Stage::Classify, RunCounts::Classify(Box::default())),
            (Stage::Purge, RunCounts::Purge(Box::default())),
        ] {
            assert_eq!(RunCounts::read(stage, &json!(counts)), counts);
        }
    }

    #[test]
    fn unknown_fields_of_a_run_record_are_ignored() {
        let counts = json!({
            "posts": 4, "by_outcome": {"ok": 1, "asleep": 1}, "later": 5,
            "reddit": {"waits": {"own_pace": {"times": 1, "secs": 0.5}}, "later": []},
        });
        let RunCounts::Collect(read) = RunCounts::read(Stage::Collect, &counts) else {
            panic!("{counts}");
        };
        assert_eq!((read.posts, read.by_outcome["asleep"]), (4, 1));
        assert_eq!(read.traffic["reddit"].waits.total().sum.as_millis(), 500);
        assert_eq!(read.traffic.len(), 1);
        let nothing = RunCounts::read(Stage::Purge, &Value::Null);
        assert_eq!(nothing, RunCounts::Unknown);
    }
}
