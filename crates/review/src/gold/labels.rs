//! Reads the gold labels that `--gold` names, and leaves out those that cannot be used, with a warning for each reason.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::{GoldError, GoldRow, ResolvedGold};
use crate::REVIEW_COMMAND;
use crate::quality::used_in_fit;
use topicmill_core::{Fullname, LabelSet, ThingKind};
use topicmill_store::{LabelSetId, Store, StoreError};

/// `--gold topic`: the topics that posts were collected for.
pub const TOPIC: &str = "topic";
/// `--gold db`: the gold labels in the database.
const DB: &str = "db";
/// The number of unknown labels that a warning lists.
const NAMED: usize = 5;
/// Posts per page of a query.
const WINDOW: u32 = 10_000;

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
            _ => {
                let mut rows = super::read_rows(path)?;
                retain_kind(&mut rows, kind, |row| row.id.kind())?;
                let annotators = rows.iter().filter_map(|row| row.annotator.clone());
                Self {
                    annotators: annotators.collect(),
                    rows,
                    ..Self::default()
                }
            }
        };
        labels.hold_out(store, sets, kept).await?;
        labels.leave_out_partly_offered(store, sets).await?;
        Ok(labels)
    }

    async fn topics(store: &Store, kind: ThingKind) -> Result<Self, GoldError> {
        let rows = topic_rows(store, kind).await?;
        if rows.is_empty() {
            return Err(GoldError::Unusable(format!(
                "`--gold topic`: no {kind} in the database was collected for a topic; use a file with columns `id` and \
                 `label`"
            )));
        }
        let texts = match kind {
            ThingKind::Post => store.purging().count_posts_with_text().await?,
            ThingKind::Comment => 0,
        };
        let left_out = match texts.saturating_sub(rows.len() as u64) {
            0 => String::new(),
            none => format!(
                " Left out without a topic: {none} of {texts} posts, so these figures are not estimates for all posts."
            ),
        };
        Ok(Self {
            rows,
            caveat: Some(format!(
                "The gold labels are the topics that posts were collected for, not labels assigned by \
                 annotators.{left_out}"
            )),
            ..Self::default()
        })
    }

    /// Reads the gold labels in the database.
    async fn answers(
        store: &Store,
        kind: ThingKind,
        decides: Option<&str>,
    ) -> Result<Self, GoldError> {
        let mut answers = store.gold().answers().await?;
        retain_kind(&mut answers, kind, |stored| stored.answer.fullname.kind())?;
        if let Some(name) = decides
            && !answers.is_empty()
            && answers.iter().all(|gold| gold.answer.annotator != name)
        {
            let annotators = answers.iter().map(|gold| &*gold.answer.annotator);
            let annotators: BTreeSet<&str> = annotators.collect();
            return Err(GoldError::Unusable(format!(
                "--decides {name}: no gold label is from this annotator; the annotators are {}",
                annotators.into_iter().collect::<Vec<_>>().join(", ")
            )));
        }
        let consensus = super::consensus(answers, decides);
        if consensus.undecided() > 0 {
            tracing::warn!(
                posts = consensus.undecided(),
                "annotators disagree about some posts, and neither a majority nor --decides NAME decides: proportions \
                 are given as bounds; `topicmill labels gold list` shows these posts"
            );
        }
        if consensus.before_an_edit > 0 {
            tracing::warn!(
                answers = consensus.before_an_edit,
                "gold labels of posts that have been edited since are left out"
            );
        }
        if consensus.rows.is_empty() {
            return Err(GoldError::Unusable(
                "`--gold db`: the database has no gold labels; collect some with `topicmill serve --review`, or import a \
                 file with `topicmill labels gold import FILE`"
                    .into(),
            ));
        }
        Ok(Self {
            rows: consensus.rows,
            drawn: consensus.random,
            has_close_calls: consensus.has_close_calls,
            offered: consensus.offered,
            annotators: consensus.annotators,
            ..Self::default()
        })
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

/// Leaves out the gold labels of things of another kind, with a warning.
///
/// # Errors
/// Returns [`GoldError::Unusable`] if nothing is left.
fn retain_kind<T>(
    labels: &mut Vec<T>,
    kind: ThingKind,
    kind_of: impl Fn(&T) -> ThingKind,
) -> Result<(), GoldError> {
    let all = labels.len();
    labels.retain(|label| kind_of(label) == kind);
    let left_out = all - labels.len();
    let advice = match kind {
        ThingKind::Post => "`labels evaluate --kind comments` reads those of comments",
        ThingKind::Comment => "people answer about comments on the page `/review?kind=comments`",
    };
    if left_out > 0 && labels.is_empty() {
        let why = format!("no gold label is of a {kind}; {advice}");
        return Err(GoldError::Unusable(why));
    }
    if left_out > 0 {
        tracing::warn!(left_out, "only gold labels of {kind}s are read; {advice}");
    }
    Ok(())
}

/// Returns a gold row for each post or comment that was collected for a topic; the label is the topic.
async fn topic_rows(store: &Store, kind: ThingKind) -> Result<Vec<GoldRow>, StoreError> {
    let mut rows: Vec<GoldRow> = Vec::new();
    let mut after = String::new();
    loop {
        let page = store.posts().collection_topics(&after, WINDOW).await?;
        let Some((last, _)) = page.last() else {
            return Ok(rows);
        };
        after = last.to_string();
        for (id, topic) in page.into_iter().filter(|(id, _)| id.kind() == kind) {
            rows.push(GoldRow::new(rows.len() as u64 + 1, id, topic));
        }
    }
}
