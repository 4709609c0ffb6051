//! Names labels in the report: from a slug to the text, and from a topic to the slug of its label.

use std::collections::BTreeMap;

use topicmill_core::LabelSet;

/// The labels' texts by slug.
pub struct LabelNames<'s>(BTreeMap<&'s str, &'s str>);

impl<'s> LabelNames<'s> {
    /// Creates the names of a label set; none without a label set.
    pub fn new(set: Option<&'s LabelSet>) -> Self {
        let labels = set.map(|set| set.labels.iter()).unwrap_or_default();
        let names = labels.map(|label| (label.slug.as_str(), label.label.as_str()));
        Self(names.collect())
    }

    /// Returns the text of the label with this slug, or the slug itself if there is none.
    pub fn name(&self, slug: &str) -> String {
        self.0.get(slug).map_or(slug, |name| name).to_owned()
    }

    /// Returns the slug of the label that a topic names: the label with this slug, or the only label with this text.
    /// The `topic_agreement` view uses the same rule.
    pub fn label_of_topic(&self, topic: &str) -> Option<&'s str> {
        if let Some((slug, _)) = self.0.get_key_value(topic) {
            return Some(slug);
        }
        let mut same = self.0.iter().filter(|(_, name)| **name == topic);
        let (slug, _) = same.next()?;
        same.next().is_none().then_some(*slug)
    }
}
