//! The progress of the review: number of answers, measured quality, and agreement of annotators.

use std::collections::HashMap;

use super::super::listing::address;
use super::queue::ReviewQueue;
use crate::display;
use topicmill_review::calibrate::Proportion;
use topicmill_review::evaluate::evaluate;
use topicmill_review::gold::{self, Consensus, PairAgreement};
use topicmill_review::join::{self, Labelling};
use topicmill_score::LabelSet;
use topicmill_store::{StoreError, Target};

/// Progress of the review.
pub struct ReviewProgress {
    /// Number of posts on which annotators agree.
    pub posts: usize,
    /// Number of posts on which annotators disagree.
    pub disagreements: usize,
    /// Agreement of each pair of annotators.
    pub agreement: Vec<PairAgreement>,
    /// Accuracy on randomly sampled posts.
    pub random: Proportion,
}

impl ReviewQueue {
    /// Returns the progress of the review.
    pub async fn progress(
        &self,
        target: Target,
        set: &LabelSet,
    ) -> Result<ReviewProgress, StoreError> {
        let answers = self.store.gold().answers().await?;
        let agreement = gold::agreement(&answers);
        let Consensus {
            mut rows,
            random,
            disagreements,
            offered,
            ..
        } = gold::consensus(answers);
        let posts = rows.len();
        // Answers under another label set count if their labels are in this one, too.
        gold::remove_partly_offered(&self.store, &mut rows, &offered, &[set]).await?;
        let has = |slug: &str| set.labels.iter().any(|label| label.slug == slug);
        rows.retain(|row| row.label.is_empty() || has(&row.label));
        let understood = gold::resolve(rows, &[set], true).unwrap_or_default();
        let labelling = Labelling {
            set,
            stored: Some(target),
            computed: HashMap::new(),
        };
        let held = join::join_gold(&self.store, &[labelling], &understood.posts).await?;
        let drawn = held.restricted_to(&random);
        let random = evaluate(&drawn.rows[0], set.labels.len()).outcome;
        Ok(ReviewProgress {
            posts,
            disagreements: disagreements.len(),
            agreement,
            random,
        })
    }
}

/// The agreement of two annotators, formatted for display.
pub struct AgreementView {
    pub names: [String; 2],
    pub text: String,
    pub href: String,
}

/// The progress, formatted for display.
pub struct ProgressView {
    pub accuracy: String,
    pub interval: String,
    pub random: String,
    pub posts: String,
    pub sentence: String,
    pub agreement: Vec<AgreementView>,
    /// URL of the posts on which annotators disagree, if there are any.
    pub disagreements: Option<String>,
}

/// Describes the agreement of two annotators.
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
        let random = &of.random;
        let sentence = match random.share {
            Some(_) => {
                "Close calls are excluded, because they are harder than most posts; so are posts of a filter."
            }
            None => {
                "The accuracy will be estimated from answers about randomly sampled posts. Close calls are excluded, \
                 because they are harder than most posts; so are posts of a filter."
            }
        };
        let list = |names: Option<&[String; 2]>| {
            let names = names.map(|[a, b]| [("a", a.as_str()), ("b", b.as_str())]);
            let names = names.into_iter().flatten();
            address(
                "/review/disagreements",
                [("as", who)].into_iter().chain(names),
            )
        };
        let disagree = match of.disagreements {
            0 => String::new(),
            1 => " Annotators disagree on 1 post, which is excluded.".to_owned(),
            posts => format!(" Annotators disagree on {posts} posts, which are excluded."),
        };
        Self {
            accuracy: random.share.map_or("–".to_owned(), display::percent),
            interval: random.share.map_or("–".to_owned(), |_| {
                let low = display::percent(random.low);
                format!(
                    "{}–{}",
                    low.trim_end_matches(" %"),
                    display::percent(random.high)
                )
            }),
            random: display::thousands(random.all as u64),
            posts: display::thousands(of.posts as u64),
            sentence: format!("{sentence}{disagree}"),
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
