//! Posts as tasks for Label Studio and Argilla, with what the model says as a suggestion. Pure: in go posts and a label
//! set, out come the texts of files.
//!
//! Label Studio: <https://labelstud.io/guide/predictions>. Argilla: the folder that `rg.Dataset.from_disk` opens.

use serde_json::{Value, json};

use super::gold::NONE_OF_THESE;
use crate::domain::{Chosen, post_text};
use crate::store::ReviewPost;
use topicmill_score::{Label, LabelSet};

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
    pub posts: &'a [(ReviewPost, Chosen)],
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
    pub fn label_studio(&self) -> Value {
        let version = self.version();
        let task = |(post, chosen): &(ReviewPost, Chosen)| {
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
    pub fn label_studio_config(&self) -> String {
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

    /// The records of Argilla: `records.json` of its folder.
    pub fn argilla_records(&self) -> Value {
        let agent = self.version();
        let record = |(post, chosen): &(ReviewPost, Chosen)| {
            json!({
                "id": post.fullname,
                "fields": { "text": post_text(&post.title, &post.selftext) },
                "metadata": { "subreddit": post.subreddit, "chosen": chosen, "text_hash": post.text_hash },
                "suggestions": {
                    "label": { "value": self.suggested(post), "score": post.score, "agent": agent },
                },
                "responses": {}, "vectors": {}, "_server_id": null,
            })
        };
        self.posts.iter().map(record).collect()
    }

    /// The settings of Argilla: `.argilla/settings.json` of its folder.
    pub fn argilla_settings(&self) -> Value {
        let mut labels: Vec<&str> = self
            .set
            .labels
            .iter()
            .map(|label| self.shown(label))
            .collect();
        labels.push(NONE_OF_THESE);
        let options = labels
            .iter()
            .map(|text| json!({ "value": text, "text": text }));
        let options: Vec<Value> = options.collect();
        // Argilla shows three at least.
        let visible = Some(options.len()).filter(|n| *n >= 3);
        let terms = |name: &str, title: &str| {
            json!({
                "id": null, "name": name, "title": title, "dataset_id": null, "visible_for_annotators": false,
                "settings": { "type": "terms", "values": null },
            })
        };
        json!({
            "guidelines": "Choose the label that fits the post best.",
            "allow_extra_metadata": true,
            "distribution": { "strategy": "overlap", "min_submitted": 1 },
            "fields": [{
                "id": null, "name": "text", "title": "Post", "required": true, "dataset_id": null,
                "settings": { "type": "text", "use_markdown": false },
            }],
            "questions": [{
                "id": null, "name": "label", "title": "Label", "description": null, "required": true,
                "dataset_id": null,
                "settings": {
                    "type": "label_selection", "options": options, "visible_options": visible,
                },
            }],
            "vectors": [],
            "metadata": [terms("subreddit", "Subreddit"), terms("chosen", "Chosen")],
        })
    }

    /// The data set of Argilla: `.argilla/dataset.json` of its folder.
    pub fn argilla_dataset(&self) -> Value {
        let plain = |c: char| {
            if c.is_ascii_alphanumeric() || "-_".contains(c) {
                c
            } else {
                '-'
            }
        };
        let name: String = self.set.name.chars().map(plain).collect();
        json!({
            "name": format!("topicmill-{name}"), "status": "draft", "guidelines": null,
            "allow_extra_metadata": true, "distribution": { "strategy": "overlap", "min_submitted": 1 },
        })
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
