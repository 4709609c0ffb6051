//! Measures the share of correct labels from annotators' answers in the database and states it in one sentence.
//!
//! Only answers about randomly sampled posts allow an estimate for all posts, so other answers are used only if no
//! sampled post has an answer. A fitted label set is never measured on the answers that it was fitted to.

use std::collections::{BTreeSet, HashMap};

use serde::Serialize;

use crate::calibrate::Proportion;
use crate::evaluate::{self, Counted, EvaluatedPost, FrameSize, LabelShare, RandomSample};
use crate::gold::{self, Consensus, GoldRow};
use crate::join::{self, JoinedGold, Labelling};
use topicmill_core::{Fullname, LabelSet, Timestamp};
use topicmill_store::{Store, StoreError, StoredGold, Target};

/// Advice for labels of unknown quality. With 100 answers, the interval is about 20 points wide.
const ADVICE: &str = "answering 100 posts takes 10 minutes";

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
    /// Number of answered posts that are left out of the figures.
    pub left_out: usize,
    /// Number of posts among these that the fit of the label set may have used.
    pub used_in_fit: usize,
    /// The posts that an estimate speaks of; `None` if these are all labelled posts, and the sample is used as it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub frame: Option<FrameSize>,
    /// The assigned and estimated shares of each label and of no label. Empty if they were not computed, if there are too
    /// few random answers, or if the sample is hardly random.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub shares: Vec<LabelShare>,
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
            let one = &share.estimated;
            let [value, low, high] = [value(share), one.low, one.high].map(percent);
            format!("{} {value} % ({low} to {high})", share.label)
        });
        let words = words.collect::<Vec<_>>().join(", ");
        (!words.is_empty()).then(|| format!("estimated: {words}"))
    }
}

/// Measures the labels of a target, whose label set is `set`, using the answers in the database. Also returns the random
/// sample, if there is one. The labels' shares are estimated only if all labelled posts are counted.
///
/// # Errors
/// Returns [`StoreError`] if the database cannot be read.
pub async fn measure(
    store: &Store,
    target: Target,
    set: &LabelSet,
    counted: Counted,
) -> Result<(MeasuredQuality, Option<RandomSample>), StoreError> {
    let mut answers = store.gold().answers().await?;
    let posts = answers.iter().map(|one| one.answer.fullname.clone());
    let answered = posts.collect::<BTreeSet<Fullname>>().len();
    let used = used_in_fit(set, &answers);
    answers.retain(|one| !used.contains(&one.answer.fullname));
    let in_sample = answers.clone();
    let Consensus {
        mut rows,
        random,
        offered,
        ..
    } = gold::consensus(answers, None);
    let randomly_drawn = |rows: &[GoldRow]| {
        let posts = rows.chunk_by(|a, b| a.id == b.id);
        posts.filter(|post| random.contains(&post[0].id)).count()
    };
    let all_random = randomly_drawn(&rows);
    gold::remove_partly_offered(store, &mut rows, &offered, &[set]).await?;
    // Answers given for a different label set count if `set` contains their label.
    let has = |slug: &str| set.labels.iter().any(|label| label.slug == slug);
    let foreign = rows
        .iter()
        .filter(|row| !row.label.is_empty() && !has(&row.label));
    let foreign: BTreeSet<Fullname> = foreign.map(|row| row.id.clone()).collect();
    rows.retain(|row| !foreign.contains(&row.id));
    // Such answers are left out because of what they say, so the others are not a random sample.
    let for_other_labels = all_random - randomly_drawn(&rows);
    // The only possible error is a lack of rows, because unknown labels are allowed and each post has one decision.
    let gold = gold::resolve(rows, &[set], true).unwrap_or_default();
    let labelling = Labelling {
        set,
        stored: Some(target),
        computed: HashMap::new(),
        held_out: HashMap::new(),
    };
    let all = join::join_gold(store, &[labelling], &gold.posts).await?;
    let drawn = all.restricted_to(&random);
    let random = if for_other_labels == 0 && !drawn.posts.is_empty() {
        Some(RandomSample::find(store, target, &in_sample, &drawn, counted).await?)
    } else {
        None
    };
    let (sample, judged) = choose_sample(&all, &drawn, random.as_ref());
    let (outcome, precision) = match &random {
        Some(random) => random.accuracy(),
        None => evaluate::accuracy(judged),
    };
    let sample = Some(sample).filter(|_| outcome.all > 0);
    let answers = AnswerCounts {
        answered,
        used_in_fit: used.len(),
        for_other_labels,
    };
    let mut of = random
        .as_ref()
        .map_or_else(String::new, RandomSample::frame_in_words);
    let doubt = random.as_ref().and_then(RandomSample::doubt);
    let size = random.as_ref().and_then(RandomSample::size);
    let shares = random
        .as_ref()
        .filter(|_| counted != Counted::IfWaves && doubt.is_none());
    let shares = shares.and_then(|random| random.shares(set));
    if let Some(doubt) = doubt {
        of = format!("{of}; {doubt}");
    }
    let quality = MeasuredQuality {
        sentence: sentence(sample, &outcome, &precision, &of, answers),
        sample,
        left_out: answered - outcome.all,
        outcome,
        precision,
        used_in_fit: used.len(),
        frame: size.filter(|size| size.not_covered > 0 || size.waves > 1),
        shares: shares.unwrap_or_default(),
    };
    Ok((quality, random))
}

/// Chooses the answers to measure with: those about randomly drawn posts, if there are any. They allow an estimate only
/// if they are still a random sample.
fn choose_sample<'j>(
    all: &'j JoinedGold,
    drawn: &'j JoinedGold,
    random: Option<&'j RandomSample>,
) -> (QualitySample, &'j [EvaluatedPost]) {
    match random {
        Some(random) => (QualitySample::Random, &random.held.rows[0]),
        None if drawn.posts.is_empty() => (QualitySample::Selected, &all.rows[0]),
        None => (QualitySample::Selected, &drawn.rows[0]),
    }
}

/// Measures the labels that the views show; `None` if no post is labelled.
///
/// # Errors
/// Returns [`StoreError`] if the database cannot be read.
pub async fn of_current_labels(
    store: &Store,
    counted: Counted,
) -> Result<Option<MeasuredQuality>, StoreError> {
    let Some(target) = store.labels().current_target().await? else {
        return Ok(None);
    };
    let set = store.labels().label_set(target.label_set).await?;
    let (quality, _) = measure(store, target, &set, counted).await?;
    Ok(Some(quality))
}

/// Returns the posts whose answers a label set may have been fitted to: the posts answered before the fit.
pub fn used_in_fit(set: &LabelSet, answers: &[StoredGold]) -> BTreeSet<Fullname> {
    let Some(at) = fitted_at(set) else {
        return BTreeSet::new();
    };
    let used = answers.iter().filter(|one| one.answer.answered_at <= at);
    used.map(|one| one.answer.fullname.clone()).collect()
}

/// Returns the time when a fitted label set was fitted.
fn fitted_at(set: &LabelSet) -> Option<Timestamp> {
    let at = &set.fitted.as_ref()?.provenance.at;
    let at = chrono::DateTime::parse_from_rfc3339(at).ok()?;
    Some(at.to_utc().into())
}

/// Numbers of answers that the sentence states.
#[derive(Clone, Copy)]
struct AnswerCounts {
    /// Posts with an answer.
    answered: usize,
    /// Posts among them that the fit may have used.
    used_in_fit: usize,
    /// Answers about randomly drawn posts that name a label of a different label set.
    for_other_labels: usize,
}

fn sentence(
    sample: Option<QualitySample>,
    outcome: &Proportion,
    precision: &Proportion,
    frame: &str,
    counts: AnswerCounts,
) -> String {
    let for_other_labels = counts.for_other_labels;
    let Some(sample) = sample else {
        return match (counts.answered, counts.used_in_fit) {
            (0, _) => format!("never measured; {ADVICE}"),
            (all, used) if all == used => {
                format!(
                    "not measured on other posts since the fit, which may have used all {all} answered posts (`topicmill \
                     labels evaluate` predicts each without its own answer); {ADVICE}"
                )
            }
            (1, _) => format!("not measured: the answered post has no label to compare; {ADVICE}"),
            (all, _) => {
                format!(
                    "not measured: none of {all} answered posts has a label to compare; {ADVICE}"
                )
            }
        };
    };
    let [low, high] = [outcome.low, outcome.high];
    let answers = if outcome.all == 1 {
        "answer"
    } else {
        "answers"
    };
    let of = match sample {
        QualitySample::Random => format!("from {} random {answers}{frame}", outcome.all),
        QualitySample::Selected if for_other_labels > 0 => format!(
            "from {} {answers}; {for_other_labels} more do not count, because the labels have changed (no estimate for \
             all posts)",
            outcome.all
        ),
        QualitySample::Selected => format!(
            "from {} {answers} about posts that were not drawn at random (no estimate for all posts)",
            outcome.all
        ),
    };
    let labels = match (precision.share, precision.all) {
        (Some(_), 1) => format!(
            "{} % of 1 assigned label is correct",
            percentages(precision)
        ),
        (Some(_), all) => format!(
            "{} % of {all} assigned labels are correct",
            percentages(precision)
        ),
        (None, _) => "none of these posts got a label".to_owned(),
    };
    let left_out = match counts
        .answered
        .saturating_sub(outcome.all + for_other_labels)
    {
        0 => "",
        1 => "; 1 other answered post is left out",
        n => &format!("; {n} other answered posts are left out"),
    };
    format!(
        "{} % correct ({} to {}), {of}; {labels}{left_out}",
        percentages(outcome),
        percent(low),
        percent(high)
    )
}

/// Formats a proportion, or its bounds if annotators disagree about posts.
fn percentages(share: &Proportion) -> String {
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

    fn sentence_for(
        sample: Option<QualitySample>,
        outcome: (usize, usize),
        precision: (usize, usize),
        answered: usize,
        used_in_fit: usize,
    ) -> String {
        let of = |(of, all)| Proportion::new(of, all);
        let counts = AnswerCounts {
            answered,
            used_in_fit,
            for_other_labels: 0,
        };
        sentence(sample, &of(outcome), &of(precision), "", counts)
    }

    #[test]
    fn the_sentence_states_the_number_of_answers_and_how_posts_were_chosen() {
        use QualitySample::{Random, Selected};
        assert_eq!(
            sentence_for(Some(Random), (101, 120), (63, 90), 160, 0),
            // Wilson: (p + z²/2n ± z √(p(1−p)/n + z²/4n²)) / (1 + z²/n) with p = 101/120 and z = 1.96.
            "84 % correct (77 to 90), from 120 random answers; 70 % of 90 assigned labels are correct; 40 other \
             answered posts are left out"
        );
        assert_eq!(
            sentence_for(Some(Random), (1, 1), (0, 0), 1, 0),
            "100 % correct (21 to 100), from 1 random answer; none of these posts got a label"
        );
        assert_eq!(
            sentence_for(Some(Random), (999, 1_000), (1, 1), 1_000, 0),
            "over 99 % correct (99 to over 99), from 1000 random answers; 100 % of 1 assigned label is correct"
        );
        assert_eq!(
            sentence_for(Some(Selected), (2, 8), (2, 4), 8, 0),
            "25 % correct (7 to 59), from 8 answers about posts that were not drawn at random (no estimate for all \
             posts); 50 % of 4 assigned labels are correct"
        );
        assert_eq!(
            sentence_for(None, (0, 0), (0, 0), 0, 0),
            "never measured; answering 100 posts takes 10 minutes"
        );
        let of = |share: (usize, usize)| Proportion::new(share.0, share.1);
        let counts = AnswerCounts {
            answered: 38,
            used_in_fit: 0,
            for_other_labels: 30,
        };
        assert_eq!(
            sentence(Some(Selected), &of((2, 8)), &of((2, 4)), "", counts),
            "25 % correct (7 to 59), from 8 answers; 30 more do not count, because the labels have changed (no estimate \
             for all posts); 50 % of 4 assigned labels are correct"
        );
        // Annotators disagree about two posts.
        let between = |least, most| of(least).between(of(most));
        assert_eq!(
            sentence(
                Some(Random),
                &between((6, 10), (8, 10)),
                &between((4, 6), (4, 6)),
                "",
                AnswerCounts {
                    answered: 10,
                    used_in_fit: 0,
                    for_other_labels: 0,
                }
            ),
            "60 to 80 % correct (31 to 94), from 10 random answers; 67 % of 6 assigned labels are correct"
        );
        for (answered, used, expected) in [
            (
                50,
                50,
                "not measured on other posts since the fit, which may have used all 50 answered posts (",
            ),
            (
                50,
                20,
                "not measured: none of 50 answered posts has a label to compare; ",
            ),
            (
                1,
                0,
                "not measured: the answered post has no label to compare; ",
            ),
        ] {
            assert!(sentence_for(None, (0, 0), (0, 0), answered, used).starts_with(expected));
        }
    }
}
