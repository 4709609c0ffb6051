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
    pub label: Option<String>,
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
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
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

impl JoinedGold {
    /// Returns the slug of the label that a run assigned to a post; `None` for an abstention.
    fn slug(&self, run: usize, set: &LabelSet, place: usize) -> Option<String> {
        let given = self.rows[run][place].given()?;
        Some(set.labels[given].slug.clone())
    }

    /// Returns up to `limit` posts that the first run labels wrongly, highest scores first.
    pub fn wrong_posts(&self, set: &LabelSet, limit: usize) -> Vec<WrongPost> {
        let rows = self.rows[0].iter().zip(&self.posts).enumerate();
        let wrong = rows.filter(|(_, (row, _))| row.given().is_some() && !row.is_right());
        let mut wrong: Vec<WrongPost> = wrong
            .map(|(place, (row, post))| WrongPost {
                id: post.id.clone(),
                title: post.title.clone(),
                gold: post.gold.clone(),
                label: self.slug(0, set, place),
                score: row.score,
            })
            .collect();
        wrong.sort_by(|a, b| b.score.total_cmp(&a.score));
        wrong.truncate(limit);
        wrong
    }

    /// Returns the posts that the two runs label differently, starting with those that only one labels correctly.
    pub fn differing_posts(&self, sets: [&LabelSet; 2]) -> Vec<DifferingPost> {
        let differing = self.posts.iter().enumerate().filter_map(|(place, post)| {
            let [a, b] = [0, 1].map(|run| self.slug(run, sets[run], place));
            let rows = [0, 1].map(|run| &self.rows[run][place]);
            (a != b).then(|| DifferingPost {
                id: post.id.clone(),
                title: post.title.clone(),
                gold: post.gold.clone(),
                a,
                b,
                score_a: rows[0].score,
                score_b: rows[1].score,
                right: match rows.map(EvaluatedPost::is_right) {
                    [true, true] => RightRun::Both,
                    [true, false] => RightRun::First,
                    [false, true] => RightRun::Second,
                    [false, false] => RightRun::Neither,
                },
            })
        });
        let mut differing: Vec<DifferingPost> = differing.collect();
        differing.sort_by_key(|post| match post.right {
            RightRun::Neither => RightRun::Both,
            right => right,
        });
        differing
    }
}
