//! Reads the gold labels that `--gold` names, and joins them with stored labels. Warns about posts that are left out.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde_json::{Value, json};

use crate::cli::CliError;
use topicmill_core::{Fullname, Timestamp};
use topicmill_review::calibrate::Proportion;
use topicmill_review::evaluate::Estimate;
use topicmill_review::gold::{self, GoldRow, ResolvedGold};
use topicmill_review::join::{self, JoinedGold, Labelling};
use topicmill_review::quality::{self, REVIEW_COMMAND};
use topicmill_score::LabelSet;
use topicmill_store::Store;

/// `--gold topic`: the topics that posts were collected for.
const TOPIC: &str = "topic";
/// `--gold db`: the gold labels in the database.
const DB: &str = "db";
/// The number of unknown labels that a warning lists.
const NAMED: usize = 5;
/// With fewer posts, confidence intervals are too wide to rely on a figure.
const GOOD_POSTS: usize = 100;

/// The gold labels that `--gold` names.
#[derive(Default)]
pub(super) struct GoldLabels {
    rows: Vec<GoldRow>,
    /// The posts sampled at random; `None` if all posts are representative.
    random: Option<BTreeSet<Fullname>>,
    /// See [`gold::Consensus::offered`].
    offered: BTreeMap<Fullname, Vec<i64>>,
    /// True if random answers were left out because of what they say, so that the others are not a random sample.
    is_selective: bool,
    /// The number of stored texts, if the gold labels are the topics that posts were collected for.
    topics_of: Option<u64>,
    /// The annotators, if the answers are from the database.
    annotators: BTreeSet<String>,
}

/// Reads gold labels from `topic`, `db` or a file. An existing file called `db` takes precedence.
pub(super) async fn read(store: &Store, word: &str) -> Result<GoldLabels, CliError> {
    let path = Path::new(word);
    let rows = match word {
        TOPIC => topics(store).await?,
        DB if !path.exists() => return answers(store).await,
        _ => gold::read_rows(path)?,
    };
    Ok(GoldLabels {
        rows,
        topics_of: match word {
            TOPIC => Some(store.purging().count_texts_after(Timestamp::EPOCH).await?),
            _ => None,
        },
        ..GoldLabels::default()
    })
}

async fn topics(store: &Store) -> Result<Vec<GoldRow>, CliError> {
    let rows = join::topics_as_gold(store).await?;
    if rows.is_empty() {
        return Err(CliError::Usage(
            "`--gold topic`: no post in the database was collected for a topic; use a file with columns `id` and \
             `label`"
                .into(),
        ));
    }
    Ok(rows)
}

/// Reads the gold labels in the database on which annotators agree.
async fn answers(store: &Store) -> Result<GoldLabels, CliError> {
    let found = gold::consensus(store.gold().answers().await?);
    if !found.disagreements.is_empty() {
        tracing::warn!(
            posts = found.disagreements.len(),
            "posts on which annotators disagree are left out: `topicmill labels gold list` shows them"
        );
    }
    if found.before_an_edit > 0 {
        tracing::warn!(
            answers = found.before_an_edit,
            "gold labels of posts that have been edited since are left out"
        );
    }
    if found.rows.is_empty() {
        return Err(CliError::Usage(
            "`--gold db`: the database has no gold labels on which annotators agree; collect some with `topicmill \
             serve --review`, or import a file with `topicmill labels gold import FILE`"
                .into(),
        ));
    }
    Ok(GoldLabels {
        rows: found.rows,
        random: found.has_close_calls.then_some(found.random),
        offered: found.offered,
        is_selective: false,
        topics_of: None,
        annotators: found.annotators,
    })
}

impl GoldLabels {
    /// Returns a caveat for topics used as gold labels; `None` for other gold labels.
    pub(super) fn caveat(&self) -> Option<String> {
        let (texts, topics) = (self.topics_of?, self.rows.len());
        let none = texts.saturating_sub(topics as u64);
        let left_out = match none {
            0 => String::new(),
            _ => format!(
                " {none} of {texts} posts have no topic and are left out, so these figures are not estimates for all \
                 posts."
            ),
        };
        Some(format!(
            "The gold labels are the topics that posts were collected for, not labels assigned by annotators.{left_out}"
        ))
    }

    /// Returns the known annotators.
    pub(super) fn annotators(&self) -> BTreeSet<String> {
        let of_rows = self.rows.iter().filter_map(|row| row.annotator.clone());
        of_rows.chain(self.annotators.iter().cloned()).collect()
    }

    /// Returns true if random answers were left out because of what they say.
    pub(super) const fn is_selective(&self) -> bool {
        self.is_selective
    }

    /// Returns true if all posts are representative, or at least `fewest` were sampled at random.
    pub(super) fn is_representative(&self, fewest: usize) -> bool {
        let random = self.random.as_ref();
        !self.is_selective && random.is_none_or(|random| random.len() >= fewest.max(1))
    }

    /// Returns the posts sampled at random, if the others are close calls, which would make the labels look worse than
    /// they are. Returns `None` if all posts are representative, or, with a warning, if fewer than `fewest` are random.
    pub(super) fn random_sample(&self, fewest: usize) -> Option<&BTreeSet<Fullname>> {
        let random = self.random.as_ref()?;
        if random.len() >= fewest.max(1) {
            return Some(random);
        }
        tracing::warn!(
            random = random.len(),
            "these gold labels are not representative: most are close calls, or were selected with a filter or outside \
             topicmill, and too few were sampled at random; the true figures for all posts are probably better"
        );
        None
    }

    /// Returns the posts sampled at random, if figures from them are estimates for all posts.
    pub(super) fn sample_for_estimates(&self) -> Option<&BTreeSet<Fullname>> {
        if self.is_selective {
            None
        } else {
            self.random_sample(1)
        }
    }

    /// Removes the gold labels that are not representative, if at least `fewest` others are left.
    pub(super) fn keep_random_sample(mut self, fewest: usize) -> Self {
        if let Some(sample) = self.random_sample(fewest).cloned() {
            let all = self.rows.len();
            self.rows.retain(|row| sample.contains(&row.id));
            tracing::info!(
                posts = self.rows.len(),
                of = all,
                "using only the gold labels of posts sampled at random: the others are close calls, or were \
                 selected with a filter or outside topicmill"
            );
        }
        self
    }
}

/// Leaves out the posts that one of the label sets was fitted to, because figures from them would be too good.
pub(super) async fn hold_out(
    store: &Store,
    mut labels: GoldLabels,
    sets: &[&LabelSet],
) -> Result<GoldLabels, CliError> {
    let mut fitted = sets
        .iter()
        .filter_map(|set| Some((&set.name, set.fitted.as_ref()?)));
    let Some((name, fitted)) = fitted.next_back() else {
        return Ok(labels);
    };
    let answers = store.gold().answers().await?;
    let used: BTreeSet<Fullname> = sets
        .iter()
        .flat_map(|set| quality::used_in_fit(set, &answers))
        .collect();
    let all = labels.rows.len();
    labels.rows.retain(|row| !used.contains(&row.id));
    if let Some(random) = &mut labels.random {
        random.retain(|post| !used.contains(post));
    }
    let left_out = all - labels.rows.len();
    labels.topics_of = labels
        .topics_of
        .map(|texts| texts.saturating_sub(left_out as u64));
    if labels.rows.is_empty() {
        return Err(CliError::Usage(format!(
            "`{name}` was fitted to all {all} gold posts, so they cannot measure it: `topicmill labels fit` prints \
             held-out figures; to measure it on other posts, label more with `{REVIEW_COMMAND}`"
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
            "`{name}` was also fitted to gold labels that are not in the database: if this evaluation uses the same \
             posts, its figures are too good"
        );
    }
    Ok(labels)
}

/// Leaves out the "none of these" answers whose annotators were not offered all labels of `sets`, with a warning.
pub(super) async fn leave_out_partly_offered(
    store: &Store,
    mut labels: GoldLabels,
    sets: &[&LabelSet],
) -> Result<GoldLabels, CliError> {
    let unasked =
        gold::remove_partly_offered(store, &mut labels.rows, &labels.offered, sets).await?;
    if !unasked.is_empty() {
        let random = labels.random.as_ref();
        labels.is_selective =
            random.is_none_or(|random| unasked.iter().any(|post| random.contains(post)));
        if let Some(random) = &mut labels.random {
            random.retain(|post| !unasked.contains(post));
        }
        tracing::warn!(
            posts = unasked.len(),
            "posts marked as \"none of these\" are left out, because the label set has labels that annotators were not \
             offered, and figures without these posts may be no estimates for all posts: once the label set is \
             current, `{REVIEW_COMMAND}` shows them first to whoever answered; or import new answers"
        );
    }
    Ok(labels)
}

/// Maps gold labels to the labels of one or more label sets. Warns about gold labels that count as out of scope.
pub(super) fn resolve(
    labels: GoldLabels,
    sets: &[&LabelSet],
    others_out_of_scope: bool,
) -> Result<ResolvedGold, CliError> {
    let gold = gold::resolve(labels.rows, sets, others_out_of_scope).map_err(|error| {
        let error = CliError::from(error);
        if labels.topics_of.is_none() {
            return error;
        }
        CliError::Usage(format!(
            "some topics of posts are not in the label set: a post gets its topic when it is collected or imported, \
             from the pipeline file of that time or a `topic` column; import the file again with --pipeline FILE, and \
             with --topics-from-subreddits if it has a `topic` column; {error}"
        ))
    })?;
    if !gold.unknown_labels.is_empty() {
        let rows: usize = gold.unknown_labels.values().sum();
        let words: Vec<String> = gold.unknown_labels.keys().take(NAMED).cloned().collect();
        let other_names = if labels.topics_of.is_some() {
            "; where a topic is a label under a different name, right labels count as wrong"
        } else {
            ""
        };
        tracing::warn!(
            rows,
            labels = gold.unknown_labels.len(),
            "gold labels that are not in the label set count as out of scope: {}{other_names}",
            join_with_ellipsis(&words, gold.unknown_labels.len())
        );
    }
    if gold.duplicates > 0 {
        tracing::info!(rows = gold.duplicates, "repeated gold labels count once");
    }
    Ok(gold)
}

/// Joins gold labels with the labels of one or more label runs. Warns about posts that are left out; returns an error
/// if none is left.
pub(super) async fn join(
    store: &Store,
    labellings: &[Labelling<'_>],
    gold: &ResolvedGold,
) -> Result<JoinedGold, CliError> {
    let held = join::join_gold(store, labellings, &gold.posts).await?;
    let out = &held.left_out;
    if held.posts.is_empty() {
        return Err(CliError::Usage(format!(
            "none of the {} gold posts can be evaluated: {} are not in the database ({} of them purged), {} have no \
             text, {} were edited after they were labelled, {} have no label of this model and label set; check the \
             ids, or label the posts with `topicmill classify` or `labels evaluate --compute`",
            gold.posts.len(),
            out.unknown,
            out.purged,
            out.without_text,
            out.edited,
            out.unlabelled
        )));
    }
    if out.unknown > 0 {
        tracing::warn!(
            posts = out.unknown,
            purged = out.purged,
            "gold posts that are not in the database are left out: {}",
            join_with_ellipsis(&out.examples, out.unknown)
        );
    }
    if out.without_text + out.edited + out.unlabelled > 0 {
        let some = |n: usize| Some(n).filter(|n| *n > 0);
        tracing::warn!(
            unlabelled = out.unlabelled,
            edited = some(out.edited),
            without_text = some(out.without_text),
            "gold posts without a label of their current text are left out: `topicmill classify` labels them"
        );
    }
    if held.posts.len() < GOOD_POSTS {
        tracing::warn!(
            posts = held.posts.len(),
            "few gold posts: check the confidence intervals before you rely on a figure"
        );
    }
    Ok(held)
}

fn join_with_ellipsis(words: &[String], all: usize) -> String {
    let more = if all > words.len() { ", …" } else { "" };
    format!("{}{more}", words.join(", "))
}

/// Formats an estimate with its confidence interval.
pub(super) fn estimate(estimate: &Estimate) -> Value {
    estimate.value.map_or(Value::Null, |value| {
        json!(format!("{value:.3} ({:.2}–{:.2})", estimate.low, estimate.high).replace('-', "−"))
    })
}

/// Formats a share with its confidence interval.
pub(super) fn share(share: &Proportion, digits: usize) -> Value {
    share.share.map_or(Value::Null, |value| {
        let (low, high) = (share.low, share.high);
        json!(format!("{value:.digits$} ({low:.2}–{high:.2})"))
    })
}
