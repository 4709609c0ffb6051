//! Gold labels for the commands that compare labels with them: what `--gold` means, and which posts are left out.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde_json::{Value, json};

use crate::cli::CliError;
use topicmill_core::{Fullname, Timestamp};
use topicmill_review::calibrate::Share;
use topicmill_review::evaluate::Estimate;
use topicmill_review::gold::{self, GoldRow, Understood};
use topicmill_review::held::{self, Held, Labelling};
use topicmill_score::LabelSet;
use topicmill_store::Store;

/// The word for the topics that posts were collected for.
const TOPIC: &str = "topic";
/// The word for what people said that the database has.
const DB: &str = "db";
/// Words of an unknown label that a warning names.
const NAMED: usize = 5;
/// Fewer posts say little.
const GOOD_POSTS: usize = 100;

/// Gold labels as `--gold` names them.
#[derive(Default)]
pub(super) struct GoldLabels {
    /// All of them.
    rows: Vec<GoldRow>,
    /// Those that stand for all posts, where the others do not.
    random: Option<BTreeSet<Fullname>>,
    /// See [`gold::Agreed::offered`].
    offered: BTreeMap<Fullname, Vec<i64>>,
    /// If they are the topics that posts were collected for: the number of stored texts.
    topics_of: Option<u64>,
}

/// The rows that `--gold` means: `topic`, `db`, or a file, which may be called `db`.
pub(super) async fn read(store: &Store, word: &str) -> Result<GoldLabels, CliError> {
    let path = Path::new(word);
    let rows = match word {
        TOPIC => topics(store).await?,
        DB if !path.exists() => return answers(store).await,
        _ => gold::rows(path)?,
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
    let rows = held::topics(store).await?;
    if rows.is_empty() {
        return Err(CliError::Usage(
            "take gold labels from the column `topic`: no post in the database was collected for a topic; give a file \
             with `id` and `label`"
                .into(),
        ));
    }
    Ok(rows)
}

/// What people answered, as far as they agree.
async fn answers(store: &Store) -> Result<GoldLabels, CliError> {
    let found = gold::agreed(store.gold().answers().await?);
    if !found.disagreements.is_empty() {
        tracing::warn!(
            posts = found.disagreements.len(),
            "posts on which people disagree are left out: `topicmill labels gold list` shows them"
        );
    }
    if found.before_an_edit > 0 {
        tracing::warn!(
            answers = found.before_an_edit,
            "answers about posts that were edited since are left out"
        );
    }
    if found.rows.is_empty() {
        return Err(CliError::Usage(
            "take gold labels from the database: people agree on no post in it; `topicmill serve --review` asks them, \
             and `topicmill labels gold import FILE` reads what they said elsewhere"
                .into(),
        ));
    }
    Ok(GoldLabels {
        rows: found.rows,
        random: found.has_close_calls.then_some(found.random),
        offered: found.offered,
        topics_of: None,
    })
}

impl GoldLabels {
    /// Returns what the topics of posts leave out as gold labels; `None` if the gold labels are answers.
    pub(super) fn caveat(&self) -> Option<String> {
        let (texts, topics) = (self.topics_of?, self.rows.len());
        let none = texts.saturating_sub(topics as u64);
        let left_out = match none {
            0 => String::new(),
            _ => format!(
                " The other {none} of {texts} posts have no topic and are left out, so these figures are no estimates for all \
                 posts."
            ),
        };
        Some(format!(
            "The gold labels are the topics that posts were collected for, not answers of people.{left_out}"
        ))
    }

    /// Returns the people who answered, where that is known.
    pub(super) fn annotators(&self) -> BTreeSet<String> {
        let rows = self.rows.iter();
        rows.filter_map(|row| row.reviewer.clone()).collect()
    }

    /// The posts that stand for all, where the others are close calls and would make labels look worse than they are,
    /// and where there are `fewest` of them at least; `None` where everything may be taken together.
    pub(super) fn random_sample(&self, fewest: usize) -> Option<&BTreeSet<Fullname>> {
        let random = self.random.as_ref()?;
        if random.len() >= fewest.max(1) {
            return Some(random);
        }
        tracing::warn!(
            random = random.len(),
            "these gold labels do not stand for all posts: most are close calls, or a file chose them, and too few were \
             drawn at random; expect better figures for all posts"
        );
        None
    }

    /// Without those that do not stand for all posts.
    pub(super) fn keep_random_sample(mut self, fewest: usize) -> Self {
        if let Some(sample) = self.random_sample(fewest).cloned() {
            let all = self.rows.len();
            self.rows.retain(|row| sample.contains(&row.id));
            tracing::info!(
                posts = self.rows.len(),
                of = all,
                "the gold posts that were drawn at random are taken: the others are close calls, or a file chose them"
            );
        }
        self
    }
}

/// Gold labels as one label set or several understand them; warns of what counts as out of scope.
pub(super) async fn resolve(
    store: &Store,
    mut labels: GoldLabels,
    sets: &[&LabelSet],
    others_out_of_scope: bool,
) -> Result<Understood, CliError> {
    let unasked = gold::without_unasked(store, &mut labels.rows, &labels.offered, sets).await?;
    if unasked > 0 {
        tracing::warn!(
            posts = unasked,
            "posts that fit none of the labels are left out: the label set has labels that were not offered then"
        );
    }
    let gold = gold::understand(labels.rows, sets, others_out_of_scope).map_err(|error| {
        let error = CliError::from(error);
        if labels.topics_of.is_none() {
            return error;
        }
        CliError::Usage(format!(
            "the topics of posts are not all labels of the label set, most often because an imported file has a column \
             `topic`: import it again with --topics-from-subreddits; {error}"
        ))
    })?;
    if !gold.foreign.is_empty() {
        let rows: usize = gold.foreign.values().sum();
        let words: Vec<String> = gold.foreign.keys().take(NAMED).cloned().collect();
        tracing::warn!(
            rows,
            labels = gold.foreign.len(),
            "gold labels that are not in the label set count as out of scope: {}",
            join_with_ellipsis(&words, gold.foreign.len())
        );
    }
    if gold.repeated > 0 {
        tracing::info!(
            rows = gold.repeated,
            "gold rows that repeat an earlier one count once"
        );
    }
    Ok(gold)
}

/// Puts labellings beside gold posts, and warns of the posts that are left out. An error where none is left.
pub(super) async fn join(
    store: &Store,
    labellings: &[Labelling<'_>],
    gold: &Understood,
) -> Result<Held, CliError> {
    let held = held::hold(store, labellings, &gold.posts).await?;
    let out = &held.left_out;
    if held.posts.is_empty() {
        return Err(CliError::Usage(format!(
            "none of the {} gold posts can be judged: {} are not in the database ({} of them were purged), {} have no \
             text, {} were edited since they were labelled, {} have no label of this model and label set; check the \
             ids; `topicmill classify`, or `labels evaluate --compute`, labels what has no label",
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
            "gold posts without a label of their present text are left out: `topicmill classify` labels what is there"
        );
    }
    if held.posts.len() < GOOD_POSTS {
        tracing::warn!(
            posts = held.posts.len(),
            "few gold posts: look at the intervals before you believe a number"
        );
    }
    Ok(held)
}

fn join_with_ellipsis(words: &[String], all: usize) -> String {
    let more = if all > words.len() { ", …" } else { "" };
    format!("{}{more}", words.join(", "))
}

/// A figure with its interval, for people.
pub(super) fn estimate(of: &Estimate) -> Value {
    of.value.map_or(Value::Null, |value| {
        json!(format!("{value:.3} ({:.2}–{:.2})", of.low, of.high).replace('-', "−"))
    })
}

/// A share with its interval, for people.
pub(super) fn share(share: &Share, digits: usize) -> Value {
    share.share.map_or(Value::Null, |of| {
        let (low, high) = (share.low, share.high);
        json!(format!("{of:.digits$} ({low:.2}–{high:.2})"))
    })
}
