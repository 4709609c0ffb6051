//! The part of the queue's state that is not stored: assignments and skipped posts.

use std::collections::{HashMap, HashSet, VecDeque};
use std::time::Duration;

use chrono::{DateTime, Utc};

use super::NextPost;
use topicmill_core::{Fullname, GoldSource, SampleReason};
use topicmill_store::{GoldAnswer, ReviewFilter, ReviewPost, Target};

/// Time limit for an assignment; the post may then be assigned to another annotator.
const ASSIGNMENT_TIMEOUT: Duration = Duration::from_mins(10);

/// The part of the queue's state that is not stored.
#[derive(Default)]
pub struct QueueState {
    pub annotators: HashMap<String, Annotator>,
    /// Unanswered close calls for `target`, as of the last read.
    pub closest: VecDeque<Fullname>,
    pub target: Option<Target>,
}

/// An annotator's state.
#[derive(Default)]
pub struct Annotator {
    /// Number of answers.
    pub answers: u64,
    pub assignment: Option<Assignment>,
    pub skipped: HashSet<Fullname>,
    /// Posts answered since the server started, latest last.
    pub answered: Vec<Fullname>,
}

/// A post that an annotator is asked to label.
#[derive(Clone)]
pub struct Assignment {
    pub post: Fullname,
    pub chosen: SampleReason,
    pub source: GoldSource,
    /// The filter that selected the post.
    pub filter: Option<ReviewFilter>,
    /// The note from an undone or earlier answer.
    pub note: String,
    /// True if the annotator's answer was "none of these", and labels were added since.
    pub has_new_labels: bool,
    pub since: DateTime<Utc>,
}

/// Returns the reason and the source for an answer that replaces an earlier one. A random post from a file keeps its
/// source; otherwise, it would count as drawn by this page. The page draws posts in order of their text hashes, so all
/// earlier posts in this order would join the random sample.
pub fn reason_and_source(earlier: &GoldAnswer) -> (SampleReason, GoldSource) {
    let source = match earlier.chosen {
        SampleReason::Random => earlier.source,
        _ => GoldSource::Review,
    };
    (earlier.chosen, source)
}

impl Assignment {
    /// Assigns an earlier answer's post.
    pub fn again(answer: &GoldAnswer, filter: Option<ReviewFilter>, since: DateTime<Utc>) -> Self {
        let (chosen, source) = reason_and_source(answer);
        Self {
            post: answer.fullname.clone(),
            chosen,
            source,
            filter,
            note: answer.note.clone().unwrap_or_default(),
            has_new_labels: false,
            since,
        }
    }

    /// Returns true if the assignment has not timed out.
    fn is_fresh(&self, now: DateTime<Utc>) -> bool {
        (now - self.since)
            .to_std()
            .is_ok_and(|age| age < ASSIGNMENT_TIMEOUT)
    }
}

impl QueueState {
    /// Returns an annotator's state.
    pub fn annotator(&mut self, who: &str) -> &mut Annotator {
        self.annotators.entry(who.to_owned()).or_default()
    }

    /// Assigns a post to an annotator.
    pub fn ask(&mut self, who: &str, post: ReviewPost, assignment: Assignment) -> NextPost {
        self.annotator(who).assignment = Some(assignment.clone());
        NextPost::Ask(Box::new(post), assignment)
    }

    /// Removes idle annotators without answers and makes their posts available again. This limits memory use, because
    /// names come from URLs.
    pub fn remove_idle_annotators(&mut self, who: &str, now: DateTime<Utc>) {
        let closest = &mut self.closest;
        let is_fresh = |assigned: &Assignment| assigned.is_fresh(now);
        self.annotators.retain(|name, annotator| {
            let stays = name == who
                || annotator.answers > 0
                || !annotator.answered.is_empty()
                || !annotator.skipped.is_empty()
                || annotator.assignment.as_ref().is_some_and(is_fresh);
            if let (false, Some(assigned)) = (stays, &annotator.assignment)
                && assigned.chosen == SampleReason::Closest
            {
                closest.push_front(assigned.post.clone());
            }
            stays
        });
    }

    /// Returns the posts that are assigned to others or skipped by the annotator.
    pub fn unavailable(&mut self, who: &str, now: DateTime<Utc>) -> HashSet<Fullname> {
        let mut unavailable = self.annotator(who).skipped.clone();
        let others = self.annotators.iter().filter(|(name, _)| *name != who);
        let assigned = others.filter_map(|(_, annotator)| annotator.assignment.as_ref());
        let fresh = assigned.filter(|assigned| assigned.is_fresh(now));
        unavailable.extend(fresh.map(|assigned| assigned.post.clone()));
        unavailable
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_annotators_without_answers_are_removed() {
        let start = DateTime::UNIX_EPOCH;
        let assignment = |post: &str, chosen| {
            Some(Assignment {
                post: post.parse().unwrap(),
                chosen,
                source: GoldSource::Review,
                filter: None,
                note: String::new(),
                has_new_labels: false,
                since: start,
            })
        };
        let mut state = QueueState::default();
        for at in 0..100 {
            state.annotator(&format!("visitor {at}"));
        }
        state.annotator("looked").assignment = assignment("t3_a1", SampleReason::Closest);
        state.annotator("drew").assignment = assignment("t3_a2", SampleReason::Random);
        state.annotator("ada").assignment = assignment("t3_a3", SampleReason::Closest);
        state.annotator("ben").assignment = assignment("t3_a4", SampleReason::Closest);
        state.annotator("ben").answered = vec!["t3_a5".parse().unwrap()];
        state.annotator("carl").skipped = ["t3_a6".parse().unwrap()].into();
        state.remove_idle_annotators("ada", start + Duration::from_mins(1));
        assert_eq!(
            state.annotators.len(),
            5,
            "annotators without a post are removed"
        );
        state.remove_idle_annotators("ada", start + ASSIGNMENT_TIMEOUT);
        let mut left: Vec<&str> = state.annotators.keys().map(String::as_str).collect();
        left.sort_unstable();
        assert_eq!(left, ["ada", "ben", "carl"]);
        assert_eq!(state.closest, ["t3_a1".parse::<Fullname>().unwrap()]);
    }
}
