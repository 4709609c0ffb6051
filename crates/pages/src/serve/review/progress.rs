//! The review's progress: the number of answers, the measured quality, and the agreement between annotators.

use super::CurrentLabels;
use super::queue::ReviewQueue;
use crate::display;
use crate::serve::pages::address;
use topicmill_core::{LabelSet, ThingKind};
use topicmill_review::evaluate::{Counted, Proportion};
use topicmill_review::gold::{self, PairAgreement};
use topicmill_review::quality::{self, MeasuredQuality};
use topicmill_store::StoreError;

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
    /// Number of posts on which annotators disagree.
    pub disagreeing: usize,
    /// The answers that the labels are fitted to, and the threshold.
    pub fit: Option<String>,
    pub agreement: Vec<AgreementView>,
    /// URL for the posts on which annotators disagree, if there are any.
    pub disagreements: Option<String>,
}

/// Numbers of posts that cannot be reviewed, formatted for display; `None` instead of 0.
pub struct Unreviewable {
    /// Posts whose text retention has deleted.
    pub without_text: Option<String>,
    /// Posts that are not labelled yet.
    pub unlabelled: Option<String>,
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
        current: &CurrentLabels,
        who: &str,
    ) -> Result<ProgressView, StoreError> {
        let answers = self.answers_about_posts().await?;
        let agreement = gold::agreement(&answers);
        let consensus = gold::consensus(answers, None);
        let CurrentLabels { target, set } = current;
        let (quality, _) =
            quality::measure(&self.store, ThingKind::Post, *target, set, Counted::IfWaves).await?;
        let url = |pair: Option<&[String; 2]>| {
            let names = pair.map(|[a, b]| [("a", a.as_str()), ("b", b.as_str())]);
            let parameters = [("as", who)].into_iter().chain(names.into_iter().flatten());
            address("/review/disagreements", parameters)
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
            disagreeing: consensus.disagreements.len(),
            fit: fit_in_words(set),
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

    /// Counts the posts that cannot be reviewed.
    pub async fn unreviewable(&self) -> Result<Unreviewable, StoreError> {
        let counts = self.store.posts().count_posts(ThingKind::Post).await?;
        let with_text = self.store.purging().count_posts_with_text().await?;
        let labelled: u64 = counts.outcomes.iter().map(|(_, posts)| posts).sum();
        let without = |part: u64| {
            let posts = counts.posts.saturating_sub(part);
            (posts > 0).then(|| display::thousands(posts))
        };
        Ok(Unreviewable {
            without_text: without(with_text),
            unlabelled: without(labelled),
        })
    }
}

/// Describes a label set's fit; `None` if it is not fitted.
fn fit_in_words(set: &LabelSet) -> Option<String> {
    let provenance = &set.fitted.as_ref()?.provenance;
    let threshold = match provenance.target {
        Some(target) => format!(", with the threshold {:.3} for {target}", set.threshold),
        None => String::new(),
    };
    let answers = display::thousands(provenance.answers);
    Some(format!("{answers} answers{threshold}"))
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
