//! A post as an entry in a list.

use crate::display;
use topicmill_core::score::LabelOutcome;
use topicmill_store::browse::PostSummary;

/// Maximum number of characters in a title: Reddit's limit.
const TITLE: usize = 300;
/// Maximum number of characters in an excerpt of the body.
const EXCERPT: usize = 220;

/// A list entry, formatted for display.
pub struct PostLine {
    pub href: String,
    pub title: String,
    pub excerpt: String,
    /// Label, `other`, `unsure` or `no label`.
    pub outcome: String,
    pub has_label: bool,
    /// The score for the label or for `other`; for a post that is `unsure`, the score for its best label.
    pub score: Option<String>,
    /// The score as a percentage, which is the width of its bar.
    pub percent: f64,
    pub subreddit: String,
    pub topic: String,
    pub day: String,
    pub reddit_score: Option<String>,
    pub num_comments: Option<String>,
}

impl PostLine {
    /// Formats a post.
    pub fn new(post: &PostSummary) -> Self {
        let title = display::single_line(&post.title, TITLE);
        let excerpt = display::single_line(&post.excerpt, EXCERPT);
        let (title, excerpt) = match (title.is_empty(), post.text_purged) {
            (true, true) => ("(text deleted by retention)".to_owned(), excerpt),
            (true, false) if post.fullname.is_comment() => (excerpt, String::new()),
            (true, false) => ("(no title)".to_owned(), excerpt),
            _ => (title, excerpt),
        };
        // If a post is `other`, the margin is the score for `other` minus the best label's score.
        let score = match (post.outcome, post.score, post.margin) {
            (Some(LabelOutcome::Other), Some(score), Some(margin)) => Some(score + margin),
            (_, score, _) => score,
        };
        let outcome = match (&post.label_name, post.outcome) {
            (Some(label), _) => display::single_line(label, 60),
            (None, Some(outcome)) => outcome.to_string(),
            (None, None) => "no label".to_owned(),
        };
        Self {
            href: format!("/posts/{}", post.fullname),
            title,
            excerpt,
            outcome,
            has_label: post.label.is_some(),
            score: score.map(|score| match post.outcome {
                Some(LabelOutcome::Unsure) => format!("best label {}", display::score(score)),
                _ => display::score(score),
            }),
            percent: score.map_or(0.0, percent),
            subreddit: display::single_line(&post.subreddit, 40),
            topic: post
                .topic
                .as_deref()
                .map_or(String::new(), |topic| display::single_line(topic, 40)),
            day: post
                .created_at
                .as_datetime()
                .format("%-d %b %Y")
                .to_string(),
            reddit_score: post.reddit_score.map(signed_thousands),
            num_comments: post.num_comments.map(signed_thousands),
        }
    }
}

/// Converts a share to a percentage, rounded to one decimal.
pub fn percent(share: f64) -> f64 {
    (share.clamp(0.0, 1.0) * 1000.0).round() / 10.0
}

/// Formats a signed number with thousands separators.
pub fn signed_thousands(n: i64) -> String {
    let sign = if n < 0 { "−" } else { "" };
    format!("{sign}{}", display::thousands(n.unsigned_abs()))
}
