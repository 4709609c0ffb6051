//! The counts of a run, stored in `runs.counts` as one JSON object with the fields of its stage.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{ClassifyCounts, Traffic};
use crate::{PurgeReason, Rejections, Stage, TopicReport};

/// The counts of a run.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[serde(untagged)]
pub enum RunCounts {
    /// Posts collected from a source.
    Collect(Box<CollectCounts>),
    /// Posts of files, or named by their ids.
    Import(Box<ImportCounts>),
    /// Posts labelled.
    Classify(Box<ClassifyCounts>),
    /// Posts purged.
    Purge(Box<PurgeCounts>),
    /// Nothing: the run is not over, was killed, or is of an earlier version.
    #[default]
    Unknown,
}

impl RunCounts {
    /// Reads the record of a run. Of fields that are missing or not known here, as in a record of another version, the
    /// others are read.
    pub fn read(stage: Stage, counts: &Value) -> Self {
        let read = match stage {
            Stage::Collect => Deserialize::deserialize(counts).map(Self::Collect),
            Stage::Import => Deserialize::deserialize(counts).map(Self::Import),
            Stage::Classify => Deserialize::deserialize(counts).map(Self::Classify),
            Stage::Purge => Deserialize::deserialize(counts).map(Self::Purge),
        };
        read.unwrap_or_default()
    }

    /// Posts that came from outside, and how many of them were not known before.
    pub fn collected(&self) -> Option<(u64, u64)> {
        match self {
            Self::Collect(done) => Some((done.posts, done.new)),
            Self::Import(done) => Some((done.posts, done.new)),
            Self::Classify(_) | Self::Purge(_) | Self::Unknown => None,
        }
    }

    /// How many topics ended in which way, where topics were read.
    pub fn outcomes(&self) -> Option<&BTreeMap<String, u64>> {
        match self {
            Self::Collect(done) => Some(&done.by_outcome),
            _ => None,
        }
    }
}

/// What collecting did.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct CollectCounts {
    /// Topics that were begun.
    pub topics: u64,
    /// How many of them ended in which way.
    pub by_outcome: BTreeMap<String, u64>,
    /// Pages read.
    pub pages: u64,
    /// Posts received and stored, each counted once a topic.
    pub posts: u64,
    /// How many of them were not known before.
    pub new: u64,
    /// How many of them were known, and something of them changed.
    pub changed: u64,
    /// How many of these have another text now, and are scored anew.
    pub edited: u64,
    /// How many of them were purged before, and so not stored.
    pub tombstoned: u64,
    /// What came and is no post, or not a whole one.
    #[serde(flatten, with = "rejected")]
    pub rejected: Rejections,
    /// The requests to each source, by its section of the settings.
    #[serde(flatten, deserialize_with = "traffic_of")]
    pub traffic: BTreeMap<String, Traffic>,
}

impl CollectCounts {
    /// Adds up what was read for each topic. `section` is that of the source.
    pub fn of(reports: &[TopicReport], section: &str, traffic: Traffic) -> Self {
        let mut sum = Self {
            topics: reports.len() as u64,
            traffic: BTreeMap::from([(section.to_owned(), traffic)]),
            ..Self::default()
        };
        for report in reports {
            let outcome = report.outcome.as_str().to_owned();
            *sum.by_outcome.entry(outcome).or_default() += 1;
            sum.pages += report.pages;
            sum.posts += report.posts;
            sum.new += report.new;
            sum.changed += report.changed;
            sum.edited += report.edited;
            sum.tombstoned += report.tombstoned;
            sum.rejected.extend(&report.rejected);
        }
        sum
    }
}

/// Takes what reads as traffic among the fields that have no other meaning.
fn traffic_of<'de, D: serde::Deserializer<'de>>(
    from: D,
) -> Result<BTreeMap<String, Traffic>, D::Error> {
    let fields = BTreeMap::<String, Value>::deserialize(from)?.into_iter();
    let traffic =
        fields.filter_map(|(name, value)| Some((name, Traffic::deserialize(value).ok()?)));
    Ok(traffic.collect())
}

/// Rejected records as two fields: how many, and how many for which reason.
mod rejected {
    use super::{Deserialize, Rejections, Serialize};

    #[derive(Default, Serialize, Deserialize)]
    #[serde(default)]
    struct Fields {
        rejected: u64,
        rejected_for: Rejections,
    }

    pub fn serialize<S: serde::Serializer>(of: &Rejections, to: S) -> Result<S::Ok, S::Error> {
        let fields = Fields {
            rejected: of.total(),
            rejected_for: of.clone(),
        };
        fields.serialize(to)
    }

    pub fn deserialize<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Rejections, D::Error> {
        Ok(Fields::deserialize(from)?.rejected_for)
    }
}

/// What an import did. A file of posts is read; of a file of ids, Reddit is asked for the posts.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ImportCounts {
    /// Records that are posts.
    pub posts: u64,
    /// How many of them were not known before.
    pub new: u64,
    /// How many of them were known, and something of them changed.
    pub changed: u64,
    /// How many of these have another text now, and are scored anew.
    pub edited: u64,
    /// Records whose topic was the label of a topic, and became its slug.
    pub topics_mapped: u64,
    /// Records whose file names another topic than the one that reads their subreddit.
    pub topics_differ: u64,
    /// How many of them were purged before, and so not stored.
    pub tombstoned: u64,
    /// Records that the filters left out.
    pub left_out: u64,
    /// Ids of posts that were stored already, and not asked for.
    pub known: u64,
    /// Posts that Reddit was asked for.
    pub asked: u64,
    /// Posts that their authors deleted.
    pub deleted: u64,
    /// Posts that moderators or Reddit removed.
    pub removed: u64,
    /// Posts that Reddit does not know any more.
    pub missing: u64,
    /// Posts that an answer did not allow to tell the fate of.
    pub unclear: u64,
    /// Requests to Reddit.
    pub requests: u64,
    /// Records that are no post, or not a whole one.
    #[serde(flatten, with = "rejected")]
    pub rejected: Rejections,
    /// The requests to Reddit, as its client counted them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reddit: Option<Traffic>,
}

impl ImportCounts {
    /// Adds what another file gave.
    pub fn add(&mut self, other: &Self) {
        self.posts += other.posts;
        self.new += other.new;
        self.changed += other.changed;
        self.edited += other.edited;
        self.topics_mapped += other.topics_mapped;
        self.topics_differ += other.topics_differ;
        self.tombstoned += other.tombstoned;
        self.left_out += other.left_out;
        self.rejected.extend(&other.rejected);
    }
}

/// What a purge did.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct PurgeCounts {
    /// Posts that Reddit was asked about.
    pub checked: u64,
    /// Posts that were here and are not any more; those of the next four that were.
    pub purged: u64,
    /// Deleted by their authors.
    pub deleted: u64,
    /// Removed by moderators or by Reddit.
    pub removed: u64,
    /// Not known to Reddit any more.
    pub missing: u64,
    /// Named to be purged.
    pub requested: u64,
    /// Posts that show one that was purged, and went with it; not among `purged`.
    pub crossposts: u64,
    /// Posts whose text was taken for its age.
    pub texts: u64,
    /// Sightings that went, because a later one of the same day is enough.
    pub sightings: u64,
    /// Runs that were summed up.
    pub runs: u64,
    /// Posts that an answer did not allow to tell the fate of; they come first again another time.
    pub unclear: u64,
    /// Questions to Reddit.
    pub requests: u64,
    /// Posts still to be asked about, where a budget or a signal ended it.
    pub left: u64,
    /// Every post of the database has been asked about by now.
    pub reconciled: bool,
    /// Bytes of what was purged, now or before, may be in the database's files still.
    pub lingers: bool,
    /// Its requests, where it asked Reddit.
    pub reddit: Option<Traffic>,
}

impl PurgeCounts {
    /// Counts a post that is gone.
    pub fn count(&mut self, reason: PurgeReason) {
        match reason {
            PurgeReason::Deleted => self.deleted += 1,
            PurgeReason::Removed => self.removed += 1,
            PurgeReason::Missing => self.missing += 1,
            PurgeReason::Requested => self.requested += 1,
            // The store counts them.
            PurgeReason::ParentPurged => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_record_of_each_stage_is_read_as_it_was_written() {
        let mut rejected = Rejections::default();
        rejected.add("a comment, not a post");
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
            reddit: Some(traffic),
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
    fn a_record_of_another_version_is_read_as_far_as_it_goes() {
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
