//! Exports posts as Label Studio tasks, with the predicted label as a pre-annotation
//! (<https://labelstud.io/guide/predictions>).
//!
//! The input is posts and a label set; the output is the contents of files.

use serde_json::{Value, json};

use super::gold::NONE_OF_THESE;
use topicmill_core::reddit::thing_text;
use topicmill_core::{Label, LabelSet, SampleReason, short_hash};
use topicmill_store::ReviewPost;

/// Hotkeys for the choices, in order; the first is for "none of these".
const KEYS: &str = "0123456789abcdefghijklmnopqrstuvwxyz";

/// The start of a labelling interface, by which an earlier one is recognised.
const CONFIG_START: &str =
    "<View>\n  <Text name=\"text\" value=\"$text\"/>\n  <Choices name=\"label\" toName=\"text\"";

/// The input of an export.
#[derive(Debug)]
pub struct Tasks<'a> {
    /// The label set to choose labels from.
    pub set: &'a LabelSet,
    /// Name of the model that made the predictions.
    pub model: &'a str,
    /// The posts in the order of the tasks, with the reason why each was sampled.
    pub posts: &'a [(ReviewPost, SampleReason)],
}

impl Tasks<'_> {
    /// Returns the display name of a label: its text, or its slug if another label has the same text.
    fn display_name<'a>(&self, label: &'a Label) -> &'a str {
        let same = |other: &&Label| other.label.eq_ignore_ascii_case(&label.label);
        if self.set.labels.iter().filter(same).count() > 1 {
            &label.slug
        } else {
            &label.label
        }
    }

    /// Returns the display name of the predicted label.
    fn suggested(&self, post: &ReviewPost) -> &str {
        let mut labels = self.set.labels.iter();
        let label = labels.find(|label| label.slug == post.label && !post.abstained);
        label.map_or(NONE_OF_THESE, |label| self.display_name(label))
    }

    /// Returns the model and the label set's version; Label Studio uses them to distinguish predictions.
    fn version(&self) -> String {
        let hash = self.set.hash();
        format!("{} {} {}", self.model, self.set.name, short_hash(&hash))
    }

    /// Returns the tasks as a JSON array.
    pub fn to_json(&self) -> Value {
        let version = self.version();
        let task = |(post, chosen): &(ReviewPost, SampleReason)| {
            let choice = json!({
                "id": post.fullname, "type": "choices", "from_name": "label", "to_name": "text",
                "value": { "choices": [self.suggested(post)] },
            });
            json!({
                "data": {
                    "fullname": post.fullname, "text": thing_text(&post.fullname, &post.title, &post.selftext),
                    "subreddit": post.subreddit, "link": link(post), "posted_at": post.created_at, "chosen": chosen,
                    "text_hash": post.text_hash,
                },
                "predictions": [{ "model_version": version, "score": post.score, "result": [choice] }],
            })
        };
        self.posts.iter().map(task).collect()
    }

    /// Returns the labelling interface as XML, for the project settings in Label Studio.
    pub fn labeling_config(&self) -> String {
        let labels = self.set.labels.iter().map(|label| self.display_name(label));
        let keys = KEYS.chars().skip(1).map(Some);
        let choices: String = labels
            .zip(keys.chain(std::iter::repeat(None)))
            .chain([(NONE_OF_THESE, KEYS.chars().next())])
            .map(|(words, key)| {
                let key = key.map_or(String::new(), |key| format!(" hotkey=\"{key}\""));
                format!("    <Choice value=\"{}\"{key}/>\n", escaped(words))
            })
            .collect();
        format!(
            "{CONFIG_START} \
             choice=\"single\" showInline=\"true\">\n{choices}  </Choices>\n</View>\n"
        )
    }
}

/// Returns true if a file is a labelling interface from [`Tasks::labeling_config`].
pub fn is_labeling_config(bytes: &[u8]) -> bool {
    bytes.starts_with(CONFIG_START.as_bytes())
}

/// Returns the URL of the post on Reddit.
fn link(post: &ReviewPost) -> Option<String> {
    let path = post.permalink.as_ref()?;
    Some(format!("https://www.reddit.com{path}"))
}

/// Escapes a string for an XML attribute and replaces control characters with spaces.
fn escaped(text: &str) -> String {
    let text = text.replace('&', "&amp;").replace('"', "&quot;");
    let text = text.replace('<', "&lt;").replace('>', "&gt;");
    text.replace(char::is_control, " ")
}
