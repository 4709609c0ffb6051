//! Measures the share of correct labels from annotators' answers in the database and states it in one sentence.
//!
//! Only answers about randomly sampled posts allow an estimate for all posts, so other answers are used only if no
//! sampled post has an answer. A fitted label set is never measured with its own labels of the posts that it was fitted
//! to: for these, it is measured with the labels of fits without each post's answer (cross-fitting).

mod sentence;

use std::collections::{BTreeSet, HashMap};

use serde::Serialize;

use self::sentence::{scope, sentence, without_estimate};
use crate::evaluate::{Accuracies, Counted, FrameSize, LabelShare, Proportion, RandomSample};
use crate::gold::{self, GoldPost};
use crate::join::{self, JoinedPost, Labelling};
use topicmill_core::{Fullname, LabelSet, ThingKind, Timestamp};
use topicmill_store::{Store, StoreError, StoredGold, Target};

/// The kind of answers used to measure quality.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum QualitySample {
    /// Answers about randomly sampled posts: the figures are estimates for all posts.
    Random,
    /// Answers about close calls or from files: the figures apply only to these posts.
    Selected,
}

/// The quality of the labels that a model assigned with a label set.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct MeasuredQuality {
    /// The quality in words, without a full stop.
    pub sentence: String,
    /// The kind of answers that the figures are computed from; `None` if there are no figures.
    pub sample: Option<QualitySample>,
    /// Accuracy: the share of answered posts with the correct outcome.
    pub outcome: Proportion,
    /// Precision: the share of correct labels among the labels assigned to answered posts.
    pub precision: Proportion,
    /// Number of these posts whose label is that of a fit without their answer.
    pub cross_fitted: usize,
    /// The answered posts that are left out of the figures.
    pub left_out: LeftOutAnswers,
    /// The posts that an estimate speaks of; `None` if these are all labelled posts, and the sample is used as it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub frame: Option<FrameSize>,
    /// The assigned and estimated shares of each label and of no label. Empty if they were not computed, if there are
    /// too few random answers, or if the sample is hardly random.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub shares: Vec<LabelShare>,
}

/// Counts of answered posts that are left out of the figures, by reason.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct LeftOutAnswers {
    /// Posts that the label set may have been fitted to, without a label by a fit to the others.
    pub used_in_fit: usize,
    /// Posts that were edited after their answer or their label.
    pub edited: usize,
    /// Posts whose answer is not one of the labels, or may be a label that the annotator was not offered.
    pub other_labels: usize,
    /// Posts without a label.
    pub unlabelled: usize,
    /// Posts whose text is only a placeholder, or was purged before it was labelled.
    pub without_text: usize,
    /// Posts that were not drawn at random, if others were.
    pub not_random: usize,
    /// Posts that were stored later than the posts that the estimate speaks of.
    pub later: usize,
}

impl MeasuredQuality {
    /// Returns true if there is an estimate for all posts.
    pub fn is_estimate(&self) -> bool {
        self.sample == Some(QualitySample::Random)
    }
}

/// Measures the labels that a target, whose label set is `set`, gave to posts or comments, using the answers about them
/// in the database. Also returns the random sample, if there is one. The labels' shares are estimated only if all
/// labelled posts are counted.
///
/// # Errors
/// Returns [`StoreError`] if the database cannot be read.
pub async fn measure(
    store: &Store,
    kind: ThingKind,
    target: Target,
    set: &LabelSet,
    counted: Counted,
) -> Result<(MeasuredQuality, Option<RandomSample>), StoreError> {
    let mut answers = store.gold().answers().await?;
    answers.retain(|gold| gold.answer.fullname.kind() == kind);
    let posts = answers.iter().map(|gold| &gold.answer.fullname);
    let answered = posts.collect::<BTreeSet<_>>().len();
    let held_out = match &set.fitted {
        Some(_) => store.labels().cross_fitted(target.label_set).await?,
        None => HashMap::new(),
    };
    let mut used = used_in_fit(set, &answers);
    used.retain(|post| !held_out.contains_key(post));
    answers.retain(|gold| !used.contains(&gold.answer.fullname));
    let usable = usable_gold(store, set, answers.clone()).await?;
    let labelling = Labelling {
        set,
        stored: Some(target),
        computed: HashMap::new(),
        held_out,
    };
    let all = join::join_gold(store, std::slice::from_ref(&labelling), &usable.posts).await?;
    let drawn = all.filtered(|post| usable.random.contains(post));
    let random = if drawn.posts.is_empty() || usable.is_selective {
        None
    } else {
        Some(RandomSample::find(store, target, &answers, &drawn, counted).await?)
    };
    let judged = match &random {
        Some(random) => &random.covered,
        None if drawn.posts.is_empty() => &all,
        None => &drawn,
    };
    let mut left_out = LeftOutAnswers {
        used_in_fit: used.len(),
        edited: answered - used.len() - usable.answered + all.left_out.edited,
        other_labels: usable.answered - usable.posts.len(),
        unlabelled: all.left_out.unlabelled,
        without_text: all.left_out.without_text,
        ..LeftOutAnswers::default()
    };
    if !drawn.posts.is_empty() {
        left_out.not_random = all.posts.len() - drawn.posts.len();
        left_out.later = drawn.posts.len() - judged.posts.len();
    }
    let (sample, accuracies, scope) = match &random {
        Some(random) => (QualitySample::Random, random.accuracies(), scope(random)),
        None => (
            QualitySample::Selected,
            Accuracies::of(judged.rows[0].iter()),
            without_estimate(kind, usable.is_selective),
        ),
    };
    let shares = match &random {
        Some(random) if counted != Counted::IfWaves && random.doubt().is_none() => {
            random.shares(set)
        }
        _ => None,
    };
    let size = random.as_ref().and_then(RandomSample::size);
    let is_crossed = |post: &&JoinedPost| labelling.held_out.contains_key(&post.id);
    let mut quality = MeasuredQuality {
        sentence: String::new(),
        sample: (accuracies.outcome.all > 0).then_some(sample),
        cross_fitted: judged.posts.iter().filter(is_crossed).count(),
        left_out,
        outcome: accuracies.outcome,
        precision: accuracies.precision,
        frame: size.filter(|size| size.not_covered > 0 || size.waves > 1),
        shares: shares.unwrap_or_default(),
    };
    quality.sentence = sentence(&quality, kind, &scope, answered);
    Ok((quality, random))
}

/// Answers that can be compared with a label set.
struct UsableGold {
    /// Number of posts with an answer about their text.
    answered: usize,
    /// The posts among them whose answer is a label that their annotators could choose.
    posts: Vec<GoldPost>,
    /// The posts that were drawn at random.
    random: BTreeSet<Fullname>,
    /// True if answers about some of these are left out because of what they say, so that the others are not a random
    /// sample.
    is_selective: bool,
}

async fn usable_gold(
    store: &Store,
    set: &LabelSet,
    answers: Vec<StoredGold>,
) -> Result<UsableGold, StoreError> {
    let mut consensus = gold::consensus(answers, None);
    // A random sample is one of posts.
    consensus.random.retain(|post| !post.is_comment());
    let (rows, offered) = (&mut consensus.rows, &consensus.offered);
    gold::remove_partly_offered(store, rows, offered, &[set]).await?;
    // Answers given for a different label set count if `set` contains their label.
    let has = |slug: &str| slug.is_empty() || set.labels.iter().any(|label| label.slug == slug);
    let foreign = consensus.rows.iter().filter(|row| !has(&row.label));
    let foreign: BTreeSet<Fullname> = foreign.map(|row| row.id.clone()).collect();
    consensus.rows.retain(|row| !foreign.contains(&row.id));
    // The only possible error is a lack of rows, because unknown labels are allowed and each post has one decision.
    let gold = gold::resolve(consensus.rows, &[set], true).unwrap_or_default();
    let usable: BTreeSet<&Fullname> = gold.posts.iter().map(|post| &post.id).collect();
    Ok(UsableGold {
        answered: consensus.posts,
        is_selective: consensus.random.iter().any(|post| !usable.contains(post)),
        posts: gold.posts,
        random: consensus.random,
    })
}

/// Measures the labels that the views show; `None` if no post is labelled.
///
/// # Errors
/// Returns [`StoreError`] if the database cannot be read.
pub async fn of_current_labels(
    store: &Store,
    counted: Counted,
) -> Result<Option<MeasuredQuality>, StoreError> {
    let Some((target, set)) = store.labels().current().await? else {
        return Ok(None);
    };
    let (quality, _) = measure(store, ThingKind::Post, target, &set, counted).await?;
    Ok(Some(quality))
}

/// Returns the posts whose answers a label set may have been fitted to: the posts answered before the fit. Fits do not
/// learn from comments.
pub fn used_in_fit(set: &LabelSet, answers: &[StoredGold]) -> BTreeSet<Fullname> {
    let Some(fitted_at) = fitted_at(set) else {
        return BTreeSet::new();
    };
    let answers = answers.iter().map(|gold| &gold.answer);
    answers
        .filter(|answer| answer.answered_at <= fitted_at && !answer.fullname.is_comment())
        .map(|answer| answer.fullname.clone())
        .collect()
}

/// Returns the time when a fitted label set was fitted.
fn fitted_at(set: &LabelSet) -> Option<Timestamp> {
    let written = &set.fitted.as_ref()?.provenance.at;
    let time = chrono::DateTime::parse_from_rfc3339(written).ok()?;
    Some(time.to_utc().into())
}
