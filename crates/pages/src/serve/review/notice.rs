//! The message about an annotator's previous action.

use super::{CurrentLabels, Review, SHORT_TITLE};
use crate::display;
use crate::serve::pages::PageError;
use topicmill_core::{Fullname, Label, string_enum};
use topicmill_review::gold;
use topicmill_store::ReviewPost;

string_enum! {
    /// An annotator's previous action, as named in a URL. Anyone can craft a URL, so it only selects one of the fixed
    /// messages.
    Action {
        Answered = "answered",
        /// Nothing was stored, because the post is gone.
        MissedPost = "gone",
        /// Nothing was stored, because the label set changed.
        MissedLabels = "changed",
        Skipped = "skipped",
        Undone = "undone",
        NothingToUndo = "nothing",
        Reopened = "reopened",
    }
}

impl Action {
    /// Returns the message; an answer is described by its post instead.
    const fn message(self) -> &'static str {
        match self {
            Self::Answered => "",
            Self::MissedPost => {
                "The post was purged or edited in the meantime; nothing was stored."
            }
            Self::MissedLabels => "The label set changed in the meantime; nothing was stored.",
            Self::Skipped => "Skipped.",
            Self::Undone => "Your last answer was undone. Here is its post again.",
            Self::NothingToUndo => "There is nothing to undo.",
            Self::Reopened => "Your new answer will replace the earlier one.",
        }
    }
}

/// The message about the previous action.
pub enum Notice {
    Plain(&'static str),
    /// An answer and the predicted label.
    Answered {
        /// The post's title, or the start of the comment.
        title: String,
        /// The answer in words.
        mine: String,
        /// The predicted label with its score.
        model: String,
        /// True if both are the same.
        is_right: bool,
    },
}

impl Review {
    /// Returns the message about the previous action, `did`, and its `post`.
    pub async fn notice(
        &self,
        did: Option<Action>,
        post: Option<Fullname>,
        current: &CurrentLabels,
        who: &str,
    ) -> Result<Notice, PageError> {
        match (did, post) {
            (Some(Action::Answered), Some(post)) => {
                self.compare_with_model(&post, current, who).await
            }
            (did, _) => Ok(Notice::Plain(did.map_or("", Action::message))),
        }
    }

    /// Compares an answer with the predicted label.
    async fn compare_with_model(
        &self,
        post: &Fullname,
        current: &CurrentLabels,
        who: &str,
    ) -> Result<Notice, PageError> {
        let labels = &current.set.labels;
        let answered = self.queue.answer_about(post, who, current.target).await?;
        let Some((answer, post)) = answered else {
            return Ok(Notice::Plain(""));
        };
        Ok(Notice::Answered {
            title: display::single_line(post.title_or_body(), SHORT_TITLE),
            mine: label_words(answer.label.as_deref(), labels),
            model: model_words(&post, labels),
            is_right: answer.label == (!post.abstained).then_some(post.label),
        })
    }
}

/// Returns an answer in words.
pub fn label_words(slug: Option<&str>, labels: &[Label]) -> String {
    let Some(slug) = slug else {
        return gold::NONE_OF_THESE.to_owned();
    };
    let label = labels.iter().find(|label| label.slug == slug);
    label.map_or(slug, |label| &label.label).to_owned()
}

/// Returns the prediction in words, with its score.
pub fn model_words(post: &ReviewPost, labels: &[Label]) -> String {
    let best = label_words(Some(&post.label), labels);
    let score = display::score(post.score);
    if post.abstained {
        format!("no label; its best is {best}, {score}")
    } else {
        format!("{best}, {score}")
    }
}
