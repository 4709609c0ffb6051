//! Lists the posts that are labelled wrongly, or differently by two label runs.

use serde::Serialize;

use super::EvaluatedPost;
use crate::join::JoinedGold;
use topicmill_core::{Fullname, LabelSet};

/// A post with a wrong label.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct WrongPost {
    /// Fullname of the post.
    pub id: Fullname,
    /// Title of the post.
    pub title: String,
    /// Gold labels of the post as written.
    pub gold: String,
    /// Slug of the assigned label.
    pub label: String,
    /// Score of the label.
    pub score: f64,
}

/// A post that two label runs label differently.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct DifferingPost {
    /// Fullname of the post.
    pub id: Fullname,
    /// Title of the post.
    pub title: String,
    /// Gold labels of the post as written.
    pub gold: String,
    /// Slug of the first run's label; `None` for an abstention.
    pub a: Option<String>,
    /// Slug of the second run's label.
    pub b: Option<String>,
    /// Score of the first run's best label.
    pub score_a: f64,
    /// Score of the second run's best label.
    pub score_b: f64,
    /// The runs with the correct outcome.
    pub right: RightRun,
}

/// The runs with the correct outcome for a post.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum RightRun {
    /// Only the first.
    First,
    /// Only the second.
    Second,
    /// Both.
    Both,
    /// Neither.
    Neither,
}

/// Returns the slug of the label that a run assigned to a post; `None` for an abstention.
fn assigned_slug(row: &EvaluatedPost, set: &LabelSet) -> Option<String> {
    Some(set.labels[row.given()?].slug.clone())
}

impl JoinedGold {
    /// Returns up to `limit` posts that the first run labels wrongly, highest scores first.
    pub fn wrong_posts(&self, set: &LabelSet, limit: usize) -> Vec<WrongPost> {
        let mut wrong = Vec::new();
        for (post, row) in self.posts.iter().zip(&self.rows[0]) {
            if let (Some(label), false) = (assigned_slug(row, set), row.is_right()) {
                wrong.push(WrongPost {
                    id: post.id.clone(),
                    title: post.title.clone(),
                    gold: post.gold.clone(),
                    label,
                    score: row.score,
                });
            }
        }
        wrong.sort_by(|a, b| b.score.total_cmp(&a.score));
        wrong.truncate(limit);
        wrong
    }

    /// Returns the posts that the two runs label differently: those that only the first labels correctly, then those
    /// that only the second does, then the others.
    pub fn differing_posts(&self, sets: [&LabelSet; 2]) -> Vec<DifferingPost> {
        let rows = self.rows[0].iter().zip(&self.rows[1]);
        let mut differing = Vec::new();
        for (post, (first, second)) in self.posts.iter().zip(rows) {
            let a = assigned_slug(first, sets[0]);
            let b = assigned_slug(second, sets[1]);
            if a == b {
                continue;
            }
            differing.push(DifferingPost {
                id: post.id.clone(),
                title: post.title.clone(),
                gold: post.gold.clone(),
                a,
                b,
                score_a: first.score,
                score_b: second.score,
                right: match (first.is_right(), second.is_right()) {
                    (true, true) => RightRun::Both,
                    (true, false) => RightRun::First,
                    (false, true) => RightRun::Second,
                    (false, false) => RightRun::Neither,
                },
            });
        }
        differing.sort_by_key(|post| match post.right {
            RightRun::First => 0,
            RightRun::Second => 1,
            RightRun::Both | RightRun::Neither => 2,
        });
        differing
    }
}
