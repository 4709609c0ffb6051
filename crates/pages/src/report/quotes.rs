//! Formats the posts that the report quotes.

use std::collections::BTreeMap;

use topicmill_core::reddit::thing_text;
use topicmill_core::{Fullname, Label, SourceKind, ThingKind};

use super::data::{LabelScore, QuotedPost};
use super::label_names::LabelNames;
use crate::display;
use topicmill_store::SamplePost;

/// Maximum number of characters in a quoted title or comment: three lines on a phone.
const TITLE: usize = 160;
/// Tolerance for comparing scores, which are stored with seven digits.
const SCORE_ERROR: f64 = 1e-4;

/// The scores of posts, in the order of the label set; `None` if they are not stored.
pub type Scores = BTreeMap<Fullname, Option<Vec<f64>>>;

/// The labels and the scores that quotes refer to.
pub struct Quotes<'r> {
    pub labels: &'r [Label],
    pub names: &'r LabelNames<'r>,
    pub scores: &'r Scores,
}

impl Quotes<'_> {
    /// Formats posts.
    pub fn of(&self, posts: &[SamplePost]) -> Vec<QuotedPost> {
        posts.iter().map(|post| self.quote(post)).collect()
    }

    fn quote(&self, post: &SamplePost) -> QuotedPost {
        // Posts from the sample source are not on Reddit.
        let is_on_reddit = post.source != SourceKind::Sample.as_str();
        let permalink = post.permalink.as_deref().filter(|_| is_on_reddit);
        QuotedPost {
            fullname: post.fullname.clone(),
            text: quoted(&post.fullname, &post.text),
            subreddit: display::single_line(&post.subreddit, 60),
            link: permalink.and_then(display::reddit_url),
            topic: post.topic.as_deref().map(|topic| self.names.name(topic)),
            best: self.two_best(post),
            is_labelled: post.label.is_some(),
        }
    }

    /// Returns the two best scores of a post; none if its scores are not stored.
    fn two_best(&self, post: &SamplePost) -> Vec<LabelScore> {
        let Some(Some(scores)) = self.scores.get(&post.fullname) else {
            return Vec::new();
        };
        let mut best: Vec<LabelScore> = self
            .labels
            .iter()
            .zip(scores)
            .map(|(label, score)| LabelScore {
                label: label.label.clone(),
                score: *score,
            })
            .collect();
        best.sort_by(|a, b| b.score.total_cmp(&a.score));
        // The margin is the distance to the second-best score, which may be the background's.
        let rival = post.score - post.margin;
        let second = best.get(1).map_or(0.0, |second| second.score);
        if !best.is_empty() && rival > second + SCORE_ERROR {
            let (label, score) = ("other".to_owned(), rival);
            best.insert(1, LabelScore { label, score });
        }
        best.truncate(2);
        best
    }
}

/// Formats the title of a post, or a comment's own words, for a quote.
pub fn quoted(fullname: &Fullname, text: &str) -> String {
    let (own, none) = match fullname.kind() {
        ThingKind::Post => (text.to_owned(), "(no title)"),
        ThingKind::Comment => (thing_text(fullname, "", text), "(a long quote)"),
    };
    match display::single_line(&own, TITLE) {
        text if text.is_empty() => none.to_owned(),
        text => text,
    }
}
