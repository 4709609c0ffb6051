//! States a measured quality in one sentence, and the estimated shares of labels in another.

use super::{LeftOutAnswers, MeasuredQuality, QualitySample};
use crate::evaluate::{LabelShare, Proportion, RandomSample};
use topicmill_core::ThingKind;

impl MeasuredQuality {
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
        let words = reasons.iter().filter(|(posts, _)| *posts > 0);
        let words = words.map(|(posts, why)| format!("{posts} {why}"));
        let words = words.collect::<Vec<_>>().join(", ");
        match all {
            0 => String::new(),
            1 => format!("; 1 answered {kind} is left out: {words}"),
            all => format!("; {all} answered {} are left out: {words}", kind.plural()),
        }
    }
}

/// Describes the quality. `scope` describes the posts that the figures speak of, with a leading space or comma.
/// `answered` is the number of posts with an answer.
pub(super) fn sentence(
    quality: &MeasuredQuality,
    kind: ThingKind,
    scope: &str,
    answered: usize,
) -> String {
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
    let correct = range(precision);
    let labels = match (precision.share, precision.all) {
        (None, _) => format!("none of these {} got a label", kind.plural()),
        (Some(_), 1) => format!("{correct} % of 1 assigned label is correct"),
        (Some(_), all) => format!("{correct} % of {all} assigned labels are correct"),
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

/// Names the posts that an estimate speaks of if these are not all posts, and says if the sample is hardly random.
pub(super) fn scope(random: &RandomSample) -> String {
    let posts = random.frame_in_words().map(|posts| format!(", of {posts}"));
    let doubt = random.doubt().map(|doubt| format!("; {doubt}"));
    posts.into_iter().chain(doubt).collect()
}

/// Says why there is no estimate for all posts, with a leading space.
pub(super) fn without_estimate(kind: ThingKind, is_selective: bool) -> String {
    if is_selective {
        return " (no estimate for all posts, because some random answers are for other labels)"
            .to_owned();
    }
    let things = kind.plural();
    format!(" about {things} that were not drawn at random (no estimate for all {things})")
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
