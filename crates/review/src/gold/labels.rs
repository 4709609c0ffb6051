//! Reads the gold labels that `--gold` names, and leaves out those that cannot be used, with a warning for each reason.

mod sources;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::{GoldError, GoldRow, ResolvedGold};
use crate::REVIEW_COMMAND;
use crate::quality::used_in_fit;
use topicmill_core::{Fullname, LabelSet, ThingKind};
use topicmill_store::{LabelSetId, Store};

/// `--gold topic`: the topics that posts were collected for.
pub const TOPIC: &str = "topic";
/// `--gold db`: the gold labels in the database.
const DB: &str = "db";
/// The number of unknown labels that a warning lists.
const NAMED: usize = 5;

/// The gold labels that `--gold` names, without those that one of the label sets was fitted to.
#[derive(Debug, Default)]
pub struct GoldLabels {
    rows: Vec<GoldRow>,
    /// The posts that are known to be sampled at random.
    drawn: BTreeSet<Fullname>,
    /// True if some of the other posts are close calls or were selected with a filter.
    has_close_calls: bool,
    /// See [`Consensus::offered`](super::Consensus::offered).
    offered: BTreeMap<Fullname, Vec<LabelSetId>>,
    /// True if random answers were left out because of what they say, so that the others are not a random sample.
    is_selective: bool,
    /// A caveat for topics used as gold labels; `None` for other gold labels.
    pub caveat: Option<String>,
    /// The known annotators.
    pub annotators: BTreeSet<String>,
}

impl GoldLabels {
    /// Reads gold labels of posts or of comments for `sets` from a source: `topic`, `db` or a file. An existing file
    /// called `db` takes precedence. If annotators disagree about a post in the database, the answer of the annotator
    /// `decides` counts. Leaves out the posts that one of the sets was fitted to, except those that are `kept` for the
    /// set at this position.
    ///
    /// # Errors
    /// Returns [`GoldError`] if the source cannot be read, or if no gold label can be used.
    pub async fn read(
        store: &Store,
        (source, kind): (&str, ThingKind),
        decides: Option<&str>,
        sets: &[&LabelSet],
        kept: impl Fn(usize, &Fullname) -> bool,
    ) -> Result<Self, GoldError> {
        let path = Path::new(source);
        let mut labels = match source {
            DB if !path.exists() => Self::answers(store, kind, decides).await?,
            _ if decides.is_some() => {
                return Err(GoldError::Unusable(
                    "--decides names an annotator whose answers are in the database: use it with `--gold db`".into(),
                ));
            }
            TOPIC => Self::topics(store, kind).await?,
            _ => Self::table(path, kind)?,
        };
        labels.hold_out(store, sets, kept).await?;
        labels.leave_out_partly_offered(store, sets).await?;
        Ok(labels)
    }

    /// Leaves out the posts that the label sets were fitted to, except those that are `kept`, because figures from them
    /// would be too good.
    async fn hold_out(
        &mut self,
        store: &Store,
        sets: &[&LabelSet],
        kept: impl Fn(usize, &Fullname) -> bool,
    ) -> Result<(), GoldError> {
        if sets.iter().all(|set| set.fitted.is_none()) {
            return Ok(());
        }
        let answers = store.gold().answers().await?;
        let total = self.posts();
        for (position, set) in sets.iter().enumerate() {
            let Some(fitted) = &set.fitted else {
                continue;
            };
            let (name, used) = (&set.name, used_in_fit(set, &answers));
            let all = self.posts();
            self.leave_out(|post| used.contains(post) && !kept(position, post));
            let left_out = all - self.posts();
            if left_out > 0 && self.rows.is_empty() {
                let others = if all < total { "other " } else { "" };
                return Err(GoldError::Unusable(format!(
                    "`{name}` was fitted to all {all} {others}gold posts, so they cannot measure it: `topicmill labels fit` \
                     prints held-out figures; to measure it on other posts, label more with `{REVIEW_COMMAND}`"
                )));
            }
            if left_out > 0 {
                tracing::warn!(
                    posts = left_out,
                    "gold posts that `{name}` was fitted to are left out: on these, it looks better than it is"
                );
            }
            if fitted.provenance.answers > used.len() as u64 {
                tracing::warn!(
                    answers = fitted.provenance.answers,
                    known = used.len(),
                    "`{name}` was also fitted to gold labels that are not in the database: if this evaluation uses the \
                     same posts, its figures are too good"
                );
            }
        }
        Ok(())
    }

    /// Returns the number of posts with gold labels.
    fn posts(&self) -> usize {
        let posts: BTreeSet<&Fullname> = self.rows.iter().map(|row| &row.id).collect();
        posts.len()
    }

    fn leave_out(&mut self, is_out: impl Fn(&Fullname) -> bool) {
        self.rows.retain(|row| !is_out(&row.id));
        self.drawn.retain(|post| !is_out(post));
    }

    /// Leaves out the "none of these" answers whose annotators were not offered all labels of `sets`.
    async fn leave_out_partly_offered(
        &mut self,
        store: &Store,
        sets: &[&LabelSet],
    ) -> Result<(), GoldError> {
        let (rows, offered) = (&mut self.rows, &self.offered);
        let removed = super::remove_partly_offered(store, rows, offered, sets).await?;
        if removed.is_empty() {
            return Ok(());
        }
        self.is_selective = !self.has_close_calls || !removed.is_disjoint(&self.drawn);
        self.leave_out(|post| removed.contains(post));
        tracing::warn!(
            posts = removed.len(),
            "posts marked as \"none of these\" are left out, because the label set has labels that annotators were not \
             offered, and figures without these posts may be no estimates for all posts: once the label set is \
             current, `{REVIEW_COMMAND}` shows them first to whoever answered; or import new answers"
        );
        Ok(())
    }

    /// Returns true if the gold labels are annotators' answers, none of which is left out because of what it says.
    pub fn is_sample(&self) -> bool {
        self.caveat.is_none() && !self.is_selective
    }

    /// Returns the posts that are known to be sampled at random; none if random answers were left out because of what
    /// they say.
    pub fn drawn(&self) -> BTreeSet<Fullname> {
        if self.is_selective {
            BTreeSet::new()
        } else {
            self.drawn.clone()
        }
    }

    /// Returns true if all posts are known to be sampled at random.
    pub fn is_random(&self) -> bool {
        !self.is_selective && self.rows.iter().all(|row| self.drawn.contains(&row.id))
    }

    /// Returns true if all posts are representative, or at least `fewest` were sampled at random.
    pub fn is_representative(&self, fewest: usize) -> bool {
        !self.is_selective && (!self.has_close_calls || self.drawn.len() >= fewest.max(1))
    }

    /// Returns the posts sampled at random, if there are others: close calls would make the labels look worse than they
    /// are. Returns `None` if fewer than `fewest` are random, with a warning if the others are close calls.
    pub fn random_sample(&self, fewest: usize) -> Option<&BTreeSet<Fullname>> {
        if self.rows.iter().all(|row| self.drawn.contains(&row.id)) {
            return None;
        }
        if self.drawn.len() >= fewest.max(1) {
            return Some(&self.drawn);
        }
        if !self.has_close_calls {
            return None;
        }
        tracing::warn!(
            random = self.drawn.len(),
            "these gold labels are not representative: most are close calls, or were selected with a filter or outside \
             topicmill, and too few were sampled at random; the true figures for all posts are probably better"
        );
        None
    }

    /// Returns the posts sampled at random, if figures from them are estimates for all posts.
    pub fn sample_for_estimates(&self) -> Option<&BTreeSet<Fullname>> {
        if self.is_selective {
            None
        } else {
            self.random_sample(1)
        }
    }

    /// Removes the gold labels that are not representative, if at least `fewest` others are left.
    #[must_use]
    pub fn keep_random_sample(mut self, fewest: usize) -> Self {
        if let Some(sample) = self.random_sample(fewest).cloned() {
            self.rows.retain(|row| sample.contains(&row.id));
            tracing::info!(
                posts = sample.len(),
                "using only the gold labels of posts sampled at random: the others are close calls, or were selected \
                 with a filter or outside topicmill"
            );
        }
        self
    }

    /// Maps gold labels to the labels of one or more label sets. Warns about gold labels that count as out of scope.
    ///
    /// # Errors
    /// See [`super::resolve`].
    pub fn resolve(
        self,
        sets: &[&LabelSet],
        others_out_of_scope: bool,
    ) -> Result<ResolvedGold, GoldError> {
        let is_topics = self.caveat.is_some();
        let gold = super::resolve(self.rows, sets, others_out_of_scope).map_err(|error| {
            if !is_topics {
                return error;
            }
            GoldError::Unusable(format!(
                "some topics of posts are not in the label set: a post gets its topic when it is collected or \
                 imported, from the pipeline file of that time or a `topic` column; import the file again with \
                 --pipeline FILE, and with --topics-from-subreddits if it has a `topic` column; {error}"
            ))
        })?;
        if !gold.unknown_labels.is_empty() {
            let rows: usize = gold.unknown_labels.values().sum();
            let words: Vec<&str> = gold.unknown_labels.keys().map(String::as_str).collect();
            let more = if words.len() > NAMED { ", …" } else { "" };
            let other_names = if is_topics {
                "; where a topic is a label under a different name, right labels count as wrong"
            } else {
                ""
            };
            tracing::warn!(
                rows,
                labels = gold.unknown_labels.len(),
                "gold labels that are not in the label set count as out of scope: {}{more}{other_names}",
                words[..words.len().min(NAMED)].join(", ")
            );
        }
        if gold.duplicates > 0 {
            tracing::info!(rows = gold.duplicates, "repeated gold labels count once");
        }
        Ok(gold)
    }
}
