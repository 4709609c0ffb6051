//! The review's progress: the number of answers, the measured quality, and the agreement between annotators.

use super::queue::ReviewQueue;
use crate::display;
use crate::serve::pages::address;
use topicmill_core::{LabelSet, ThingKind};
use topicmill_review::evaluate::{Counted, Proportion};
use topicmill_review::gold::{self, PairAgreement};
use topicmill_review::quality::{self, MeasuredQuality};
use topicmill_store::{StoreError, Target};

/// The progress, formatted for display.
pub struct ProgressView {
    pub accuracy: String,
    pub precision: String,
    /// Number of random posts from which accuracy and precision are estimated.
    pub random: String,
    /// Number of posts with an answer about their text.
    pub posts: String,
    /// The quality in words.
    pub quality: String,
    pub sentence: String,
    pub agreement: Vec<AgreementView>,
    /// URL for the posts on which annotators disagree, if there are any.
    pub disagreements: Option<String>,
}

/// The agreement between two annotators, formatted for display.
pub struct AgreementView {
    pub names: [String; 2],
    pub text: String,
    pub href: String,
}

impl ReviewQueue {
    /// Returns the review's progress, with links for an annotator.
    pub async fn progress(
        &self,
        (target, set): (Target, &LabelSet),
        who: &str,
    ) -> Result<ProgressView, StoreError> {
        let answers = self.answers_about_posts().await?;
        let agreement = gold::agreement(&answers);
        let consensus = gold::consensus(answers, None);
        let (quality, _) =
            quality::measure(&self.store, ThingKind::Post, target, set, Counted::IfWaves).await?;
        let url = |pair: Option<&[String; 2]>| {
            let names = pair.map(|[a, b]| [("a", a.as_str()), ("b", b.as_str())]);
            let parameters = [("as", who)].into_iter().chain(names.into_iter().flatten());
            address("/review/disagreements", parameters)
        };
        let disagree = match consensus.disagreements.len() {
            0 => String::new(),
            1 => " Annotators disagree on 1 post.".to_owned(),
            posts => format!(" Annotators disagree on {posts} posts."),
        };
        Ok(ProgressView {
            accuracy: percent(&quality, &quality.outcome),
            precision: percent(&quality, &quality.precision),
            random: if quality.is_estimate() {
                display::thousands(quality.outcome.all as u64)
            } else {
                "0".to_owned()
            },
            posts: display::thousands(consensus.posts as u64),
            sentence: format!(
                "Only randomly sampled posts are representative; close calls and filtered posts are harder than \
                 most.{disagree}{}",
                fit_in_words(set)
            ),
            quality: quality.sentence,
            agreement: agreement
                .into_iter()
                .map(|pair| AgreementView {
                    text: agreement_in_words(&pair),
                    href: url(Some(&pair.annotators)),
                    names: pair.annotators,
                })
                .collect(),
            disagreements: (!consensus.disagreements.is_empty()).then(|| url(None)),
        })
    }

    /// Names the posts that cannot be reviewed, with a trailing space; empty if there are none.
    pub async fn unreviewable(&self) -> Result<String, StoreError> {
        let counts = self.store.posts().count_posts(ThingKind::Post).await?;
        let with_text = self.store.purging().count_posts_with_text().await?;
        let labelled = counts.outcomes.iter().map(|(_, posts)| posts).sum();
        let (without_text, unlabelled) = (
            counts.posts.saturating_sub(with_text),
            counts.posts.saturating_sub(labelled),
        );
        let mut words = String::new();
        if without_text > 0 {
            let posts = display::thousands(without_text);
            words.extend(["Posts without text, because of retention: ", &posts, ". "]);
        }
        if unlabelled > 0 {
            let posts = display::thousands(unlabelled);
            words.extend(["Posts without a label: ", &posts, ". "]);
            words += "They can be reviewed once `topicmill classify` has labelled them. ";
        }
        Ok(words)
    }
}

/// Describes a label set's fit, with a leading space.
fn fit_in_words(set: &LabelSet) -> String {
    let Some(fitted) = &set.fitted else {
        return String::new();
    };
    let threshold = match fitted.provenance.target {
        Some(target) => format!(", with the threshold {:.3} for {target}", set.threshold),
        None => String::new(),
    };
    let answers = display::thousands(fitted.provenance.answers);
    format!(" The labels are fitted to {answers} answers{threshold}.")
}

/// Formats an estimated proportion, or a dash if it is no estimate.
fn percent(quality: &MeasuredQuality, proportion: &Proportion) -> String {
    match (proportion.share, proportion.share_if_right) {
        (Some(least), Some(most)) if quality.is_estimate() => {
            format!("{} to {}", display::percent(least), display::percent(most))
        }
        (Some(share), None) if quality.is_estimate() => display::percent(share),
        _ => "–".to_owned(),
    }
}

/// Describes the agreement between two annotators.
pub fn agreement_in_words(pair: &PairAgreement) -> String {
    let counts = format!("the same answer to {} of {} posts", pair.same, pair.posts);
    match pair.kappa {
        Some(kappa) => format!("Cohen\u{2019}s kappa {}, {counts}", display::score(kappa)),
        None => format!("{counts}, and always the same label, so that kappa is undefined"),
    }
}
