//! Measures the share of correct labels from annotators' answers in the database and states it in one sentence.
//!
//! Only answers about randomly sampled posts allow an estimate for all posts, so other answers are used only if no
//! sampled post has an answer. A fitted label set is never measured with its own labels of the posts that it was fitted
//! to: for these, it is measured with the labels of fits without each post's answer (cross-fitting).

use std::collections::{BTreeSet, HashMap};

use serde::Serialize;

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

impl LeftOutAnswers {
    /// Lists the reasons, with a leading semicolon; empty if no post is left out.
    fn in_words(&self, kind: ThingKind) -> String {
        let reasons = [
            (self.not_random, "not drawn at random"),
            (self.used_in_fit, "used in the fit"),
            (self.other_labels, "answered for other labels"),
            (self.edited, "edited since"),
            (self.unlabelled, "not labelled"),
            (self.without_text, "without text"),
            (self.later, "stored later"),
        ];
        let all: usize = reasons.iter().map(|(posts, _)| posts).sum();
        let words: Vec<String> = reasons
            .iter()
            .filter(|(posts, _)| *posts > 0)
            .map(|(posts, why)| format!("{posts} {why}"))
            .collect();
        let words = words.join(", ");
        match all {
            0 => String::new(),
            1 => format!("; 1 answered {kind} is left out: {words}"),
            all => format!("; {all} answered {} are left out: {words}", kind.plural()),
        }
    }
}

impl MeasuredQuality {
    /// Returns true if there is an estimate for all posts.
    pub fn is_estimate(&self) -> bool {
        self.sample == Some(QualitySample::Random)
    }

    /// Names the labels with the largest estimated shares; `None` without estimates.
    pub fn shares_in_words(&self, most: usize) -> Option<String> {
        let mut shares: Vec<&LabelShare> = self.shares.iter().collect();
        let value = |share: &LabelShare| share.estimated.value.unwrap_or(0.0);
        shares.sort_by(|a, b| value(b).total_cmp(&value(a)));
        let words = shares.iter().take(most).map(|share| {
            let (low, high) = (share.estimated.low, share.estimated.high);
            let [value, low, high] = [value(share), low, high].map(percent);
            format!("{} {value} % ({low} to {high})", share.label)
        });
        let words: Vec<String> = words.collect();
        (!words.is_empty()).then(|| format!("estimated: {}", words.join(", ")))
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

/// Names the posts that an estimate speaks of if these are not all posts, and says if the sample is hardly random.
fn scope(random: &RandomSample) -> String {
    let posts = random.frame_in_words().map(|posts| format!(", of {posts}"));
    let doubt = random.doubt().map(|doubt| format!("; {doubt}"));
    posts.into_iter().chain(doubt).collect()
}

/// Says why there is no estimate for all posts, with a leading space.
fn without_estimate(kind: ThingKind, is_selective: bool) -> String {
    if is_selective {
        return " (no estimate for all posts, because some random answers are for other labels)"
            .to_owned();
    }
    let things = kind.plural();
    format!(" about {things} that were not drawn at random (no estimate for all {things})")
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

/// Describes the quality. `scope` describes the posts that the figures speak of, with a leading space or comma.
/// `answered` is the number of posts with an answer.
fn sentence(quality: &MeasuredQuality, kind: ThingKind, scope: &str, answered: usize) -> String {
    let (outcome, precision) = (&quality.outcome, &quality.precision);
    let left_out = quality.left_out.in_words(kind);
    let Some(sample) = quality.sample else {
        let state = match answered {
            0 => "never measured".to_owned(),
            _ => format!("not measured: no answered {kind} has a label to compare{left_out}"),
        };
        // With 100 answers, the interval is about 20 points wide.
        return format!("{state}; answering 100 {} takes 10 minutes", kind.plural());
    };
    let random = match sample {
        QualitySample::Random => "random ",
        QualitySample::Selected => "",
    };
    let answers = match outcome.all {
        1 => format!("1 {random}answer"),
        all => format!("{all} {random}answers"),
    };
    let crossed = match quality.cross_fitted {
        0 => "",
        _ => " (cross-fitted)",
    };
    let labels = match (precision.share, precision.all) {
        (None, _) => format!("none of these {} got a label", kind.plural()),
        (Some(_), 1) => format!("{} % of 1 assigned label is correct", range(precision)),
        (Some(_), all) => format!(
            "{} % of {all} assigned labels are correct",
            range(precision)
        ),
    };
    format!(
        "{} % correct (95 % interval {} to {}), from {answers}{crossed}{scope}; {labels}{left_out}",
        range(outcome),
        percent(outcome.low),
        percent(outcome.high)
    )
}

/// Formats a proportion as a percentage, or its bounds if annotators disagree about posts.
fn range(share: &Proportion) -> String {
    let least = percent(share.share.unwrap_or_default());
    match share.share_if_right {
        Some(most) => format!("{least} to {}", percent(most)),
        None => least,
    }
}

/// Formats a share as a percentage without decimals. Only shares of exactly 0 and 1 become 0 and 100.
fn percent(share: f64) -> String {
    match share * 100.0 {
        percent if percent > 0.0 && percent < 0.5 => "under 1".to_owned(),
        percent if (99.5..100.0).contains(&percent) => "over 99".to_owned(),
        percent => format!("{percent:.0}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use super::QualitySample::{Random, Selected};

    fn measured(
        sample: QualitySample,
        outcome: Proportion,
        precision: Proportion,
    ) -> MeasuredQuality {
        MeasuredQuality {
            sample: Some(sample),
            outcome,
            precision,
            ..unmeasured()
        }
    }

    fn unmeasured() -> MeasuredQuality {
        MeasuredQuality {
            sentence: String::new(),
            sample: None,
            outcome: Proportion::new(0, 0),
            precision: Proportion::new(0, 0),
            cross_fitted: 0,
            left_out: LeftOutAnswers::default(),
            frame: None,
            shares: Vec::new(),
        }
    }

    fn sentence_of(quality: &MeasuredQuality, frame: &str) -> String {
        let answered = quality.outcome.all + quality.left_out.edited;
        sentence(quality, ThingKind::Post, frame, answered)
    }

    #[test]
    fn the_sentence_states_the_shares_of_right_labels_and_the_number_of_answers() {
        let few = measured(Random, Proportion::new(101, 120), Proportion::new(63, 90));
        let one = measured(Random, Proportion::new(1, 1), Proportion::new(0, 0));
        let cross_fitted = MeasuredQuality {
            cross_fitted: 1,
            ..measured(Random, Proportion::new(999, 1_000), Proportion::new(1, 1))
        };
        // Annotators disagree about two posts.
        let disputed = Proportion::new(6, 10).between(Proportion::new(8, 10));
        let disputed = measured(Random, disputed, Proportion::new(4, 6));
        for (quality, expected) in [
            // Wilson: (p + z²/2n ± z √(p(1−p)/n + z²/4n²)) / (1 + z²/n) with p = 101/120 and z = 1.96.
            (
                few,
                "84 % correct (95 % interval 77 to 90), from 120 random answers; 70 % of 90 assigned labels are correct",
            ),
            (
                one,
                "100 % correct (95 % interval 21 to 100), from 1 random answer; none of these posts got a label",
            ),
            (
                cross_fitted,
                "over 99 % correct (95 % interval 99 to over 99), from 1000 random answers (cross-fitted); 100 % of 1 \
                 assigned label is correct",
            ),
            (
                disputed,
                "60 to 80 % correct (95 % interval 31 to 94), from 10 random answers; 67 % of 6 assigned labels are \
                 correct",
            ),
        ] {
            assert_eq!(sentence_of(&quality, ""), expected);
        }
    }

    #[test]
    fn the_sentence_counts_the_answered_posts_that_are_left_out_by_reason() {
        let some = LeftOutAnswers {
            edited: 3,
            not_random: 40,
            ..LeftOutAnswers::default()
        };
        let quality = MeasuredQuality {
            left_out: some,
            ..measured(Random, Proportion::new(2, 8), Proportion::new(2, 4))
        };
        let sentence = sentence_of(&quality, "");
        let expected = "43 answered posts are left out: 40 not drawn at random, 3 edited since";
        assert!(sentence.ends_with(expected), "{sentence}");
    }

    #[test]
    fn answers_that_are_not_random_are_about_some_posts() {
        let quality = MeasuredQuality {
            left_out: LeftOutAnswers {
                other_labels: 30,
                ..LeftOutAnswers::default()
            },
            ..measured(Selected, Proportion::new(2, 8), Proportion::new(2, 4))
        };
        assert_eq!(
            sentence_of(&quality, " about some posts"),
            "25 % correct (95 % interval 7 to 59), from 8 answers about some posts; 50 % of 4 assigned labels are \
             correct; 30 answered posts are left out: 30 answered for other labels"
        );
    }

    #[test]
    fn without_a_measurement_the_sentence_says_how_to_get_one() {
        assert_eq!(
            sentence_of(&unmeasured(), ""),
            "never measured; answering 100 posts takes 10 minutes"
        );
        let outdated = MeasuredQuality {
            left_out: LeftOutAnswers {
                edited: 1,
                ..LeftOutAnswers::default()
            },
            ..unmeasured()
        };
        assert_eq!(
            sentence_of(&outdated, ""),
            "not measured: no answered post has a label to compare; 1 answered post is left out: 1 edited since; \
             answering 100 posts takes 10 minutes"
        );
    }
}
