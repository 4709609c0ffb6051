//! The review's progress: the number of answers, the measured quality, and the agreement between annotators.

use super::queue::ReviewQueue;
use crate::display;
use crate::serve::pages::address;
use topicmill_core::{LabelSet, ThingKind};
use topicmill_review::calibrate::Proportion;
use topicmill_review::evaluate::Counted;
use topicmill_review::gold::{self, Consensus, PairAgreement};
use topicmill_review::quality::{self, MeasuredQuality};
use topicmill_store::{StoreError, Target};

/// The review's progress.
pub struct ReviewProgress {
    /// Number of posts with an answer about their text.
    pub posts: usize,
    /// Number of posts on which annotators disagree.
    pub disagreements: usize,
    /// Agreement between each pair of annotators.
    pub agreement: Vec<PairAgreement>,
    /// The labels' quality.
    pub quality: MeasuredQuality,
    /// Describes the label set's fit, with a leading space; empty if it is not fitted.
    pub fit: String,
}

impl ReviewQueue {
    /// Returns the review's progress.
    pub async fn progress(
        &self,
        target: Target,
        set: &LabelSet,
    ) -> Result<ReviewProgress, StoreError> {
        let answers = self.answers_about_posts().await?;
        let agreement = gold::agreement(&answers);
        let Consensus {
            posts,
            disagreements,
            ..
        } = gold::consensus(answers, None);
        let (quality, _) =
            quality::measure(&self.store, ThingKind::Post, target, set, Counted::IfWaves).await?;
        Ok(ReviewProgress {
            posts,
            disagreements: disagreements.len(),
            agreement,
            quality,
            fit: fit_in_words(set),
        })
    }
}

impl ReviewQueue {
    /// Names the posts that cannot be reviewed, with a trailing space; empty if there are none.
    pub async fn others(&self) -> Result<String, StoreError> {
        let posts = self.store.posts().count_posts(ThingKind::Post).await?;
        let texts = self.store.purging().count_posts_with_text().await?;
        let outcomes = posts.outcomes.iter().map(|(_, posts)| posts).sum();
        let in_words = |why: &str, posts: u64| match posts {
            0 => String::new(),
            posts => format!("{why}: {}. ", display::thousands(posts)),
        };
        let purged = in_words(
            "Posts without text, because of retention",
            posts.posts.saturating_sub(texts),
        );
        let mut unlabelled = in_words(
            "Posts without a label",
            posts.posts.saturating_sub(outcomes),
        );
        if !unlabelled.is_empty() {
            unlabelled += "They can be reviewed once `topicmill classify` has labelled them. ";
        }
        Ok(purged + &unlabelled)
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

/// The agreement between two annotators, formatted for display.
pub struct AgreementView {
    pub names: [String; 2],
    pub text: String,
    pub href: String,
}

/// The progress, formatted for display.
pub struct ProgressView {
    pub accuracy: String,
    pub precision: String,
    /// Number of random posts from which accuracy and precision are estimated.
    pub random: String,
    pub posts: String,
    /// The quality in words.
    pub quality: String,
    pub sentence: String,
    pub agreement: Vec<AgreementView>,
    /// URL for the posts on which annotators disagree, if there are any.
    pub disagreements: Option<String>,
}

/// Describes the agreement between two annotators.
pub fn agreement_view(pair: &PairAgreement) -> String {
    let PairAgreement {
        posts, same, kappa, ..
    } = pair;
    let counts = format!("the same answer to {same} of {posts} posts");
    match kappa {
        Some(kappa) => format!("Cohen\u{2019}s kappa {}, {counts}", display::score(*kappa)),
        None => format!("{counts}, and always the same label, so that kappa is undefined"),
    }
}

impl ProgressView {
    /// Formats the progress for an annotator.
    pub fn new(of: &ReviewProgress, who: &str) -> Self {
        let quality = &of.quality;
        let percent = |proportion: &Proportion| match proportion.share {
            Some(share) if quality.is_estimate() => {
                let most = proportion.share_if_right.map(display::percent);
                let most = most.map_or_else(String::new, |most| format!(" to {most}"));
                display::percent(share) + &most
            }
            _ => "–".to_owned(),
        };
        let random = if quality.is_estimate() {
            quality.outcome.all
        } else {
            0
        };
        let list = |pair: Option<&[String; 2]>| {
            let names = pair.map(|[a, b]| [("a", a.as_str()), ("b", b.as_str())]);
            let parameters = [("as", who)].into_iter().chain(names.into_iter().flatten());
            address("/review/disagreements", parameters)
        };
        let disagree = match of.disagreements {
            0 => String::new(),
            1 => " Annotators disagree on 1 post.".to_owned(),
            posts => format!(" Annotators disagree on {posts} posts."),
        };
        Self {
            accuracy: percent(&quality.outcome),
            precision: percent(&quality.precision),
            random: display::thousands(random as u64),
            posts: display::thousands(of.posts as u64),
            quality: quality.sentence.clone(),
            sentence: format!(
                "Only randomly sampled posts are representative; close calls and filtered posts are harder than \
                 most.{disagree}{}",
                of.fit
            ),
            agreement: of
                .agreement
                .iter()
                .map(|pair| AgreementView {
                    names: pair.annotators.clone(),
                    text: agreement_view(pair),
                    href: list(Some(&pair.annotators)),
                })
                .collect(),
            disagreements: (of.disagreements > 0).then(|| list(None)),
        }
    }
}
