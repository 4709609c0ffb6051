//! Posts as tasks for Label Studio, with the model's label as a suggestion
//! (<https://labelstud.io/guide/predictions>). Pure: takes posts and a label set, and returns the texts of files.

use serde_json::{Value, json};

use super::gold::NONE_OF_THESE;
use topicmill_core::SampleReason;
use topicmill_score::reddit::post_text;
use topicmill_score::{Label, LabelSet};
use topicmill_store::ReviewPost;

/// Keys that Label Studio gives to choices, in order; none of these has the first.
const KEYS: &str = "0123456789abcdefghijklmnopqrstuvwxyz";

/// What tasks are made of.
#[derive(Debug)]
pub struct Tasks<'a> {
    /// Whose labels are offered.
    pub set: &'a LabelSet,
    /// The model whose labels are suggested.
    pub model: &'a str,
    /// The posts in the order in which they are asked, with why.
    pub posts: &'a [(ReviewPost, SampleReason)],
}

impl Tasks<'_> {
    /// What people see of a label: its words, or its slug where another label has the same words.
    fn shown<'a>(&self, label: &'a Label) -> &'a str {
        let same = |other: &&Label| other.label.eq_ignore_ascii_case(&label.label);
        if self.set.labels.iter().filter(same).count() > 1 {
            &label.slug
        } else {
            &label.label
        }
    }

    /// What the model says of a post, as people see it.
    fn suggested(&self, post: &ReviewPost) -> &str {
        let mut labels = self.set.labels.iter();
        let label = labels.find(|label| label.slug == post.label && !post.abstained);
        label.map_or(NONE_OF_THESE, |label| self.shown(label))
    }

    /// The version of the model and label set, by which an evaluation can tell suggestions apart.
    fn version(&self) -> String {
        let hash = self.set.hash();
        format!("{} {} {}", self.model, self.set.name, &hash[..12])
    }

    /// The tasks of Label Studio: a JSON array.
    pub fn to_json(&self) -> Value {
        let version = self.version();
        let task = |(post, chosen): &(ReviewPost, SampleReason)| {
            let choice = json!({
                "id": post.fullname, "type": "choices", "from_name": "label", "to_name": "text",
                "value": { "choices": [self.suggested(post)] },
            });
            json!({
                "data": {
                    "fullname": post.fullname, "text": post_text(&post.title, &post.selftext),
                    "subreddit": post.subreddit, "link": link(post), "posted_at": post.created_at, "chosen": chosen,
                    "text_hash": post.text_hash,
                },
                "predictions": [{ "model_version": version, "score": post.score, "result": [choice] }],
            })
        };
        self.posts.iter().map(task).collect()
    }

    /// The labelling interface of Label Studio: what its settings take.
    pub fn labeling_config(&self) -> String {
        let labels = self.set.labels.iter().map(|label| self.shown(label));
        let keys = KEYS
            .chars()
            .skip(1)
            .map(Some)
            .chain(std::iter::repeat(None));
        let choices: String = labels
            .zip(keys)
            .chain([(NONE_OF_THESE, KEYS.chars().next())])
            .map(|(words, key)| {
                let key = key.map_or(String::new(), |key| format!(" hotkey=\"{key}\""));
                format!("    <Choice value=\"{}\"{key}/>\n", escaped(words))
            })
            .collect();
        format!(
            "<View>\n  <Text name=\"text\" value=\"$text\"/>\n  \
             <Choices name=\"label\" toName=\"text\" choice=\"single\" showInline=\"true\">\n{choices}  </Choices>\n</View>\n"
        )
    }
}

/// Where people can read the whole post.
fn link(post: &ReviewPost) -> Option<String> {
    let path = post.permalink.as_ref()?;
    Some(format!("https://www.reddit.com{path}"))
}

/// A text as the value of an attribute of XML, without what XML cannot say at all.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            c if c.is_control() => out.push(' '),
            c => out.push(c),
        }
    }
    out
}
