//! What a label is compared as. Pure: a label set goes in, the texts of each label come out.
//!
//! An NLI model compares a post with one sentence, the hypothesis. An embedding model compares it with the
//! mean of the vectors of several texts: the hypothesis and the label's descriptions, which say in plain
//! words what a bare label leaves open. A classifier compares it with nothing: each of its labels has a logit, and a key
//! under which that is stored.
//!
//! An embedding model may have [learned](crate::folder::learned) vectors for certain labels. They count for a label set if
//! there is one for each of its labels, found by its texts. Otherwise none of them counts, because a learned vector and one
//! made of words do not compare. The background keeps the vectors of its words.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use crate::folder::ModelKind;
use crate::labels::{Label, LabelSet};

/// The texts of a label: one for an NLI model, one or more for an embedding model, never none. What a classifier calls a
/// label is its one text.
pub fn texts(kind: &ModelKind, set: &LabelSet, label: &Label) -> Vec<String> {
    if kind.head().is_some() {
        return vec![format!("class {}", label.label)];
    }
    let mut texts = vec![set.hypothesis(label)];
    if matches!(kind, ModelKind::Embedding(_)) {
        let descriptions = label.descriptions.iter().map(|text| text.trim());
        texts.extend(
            descriptions
                .filter(|text| !text.is_empty())
                .map(str::to_owned),
        );
    }
    texts
}

/// What is compared in place of each label: for a label one list of [texts](texts); for the background, which comes
/// last where something of it is left, one for each of its topics.
pub fn groups(kind: &ModelKind, set: &LabelSet) -> Vec<Vec<Vec<String>>> {
    let labels = set.labels.iter().map(|label| vec![texts(kind, set, label)]);
    let topics = set.background_for(kind).into_iter();
    let background: Vec<_> = topics
        .map(|topic| {
            let label = Label {
                slug: topic.label.clone(),
                label: topic.label.clone(),
                descriptions: topic.descriptions.clone(),
            };
            texts(kind, set, &label)
        })
        .collect();
    labels
        .chain((!background.is_empty()).then_some(background))
        .collect()
}

/// The vectors that a model has learned for the labels of a set, in their order, if there is one for each of them.
pub fn learned<'k>(kind: &'k ModelKind, set: &LabelSet) -> Option<Vec<&'k [f64]>> {
    let found = found(kind, set)?;
    found.into_iter().collect()
}

/// For each label of a set the vector that a model has learned for it; `None` from a model that has learned none.
fn found<'k>(kind: &'k ModelKind, set: &LabelSet) -> Option<Vec<Option<&'k [f64]>>> {
    let ModelKind::Embedding(head) = kind else {
        return None;
    };
    let labels = set.labels.iter();
    let found = labels.map(|label| head.learned.vector(&texts(kind, set, label)));
    (!head.learned.is_empty()).then(|| found.collect())
}

/// Why labels are compared by their words although the model has learned vectors for some of them, for people; `None` where
/// it has one for each of them, or for none.
pub fn why_by_words(kind: &ModelKind, set: &LabelSet) -> Option<String> {
    /// Labels that are named; more would fill the line.
    const NAMED: usize = 3;
    let found = found(kind, set)?;
    let labels = set.labels.iter().zip(&found);
    let lacking = labels.filter(|(_, vector)| vector.is_none());
    let lacking: Vec<String> = lacking
        .map(|(label, _)| format!("`{}`", label.slug))
        .collect();
    let (of, learned) = (found.len(), found.len() - lacking.len());
    if learned == 0 || lacking.is_empty() {
        return None;
    }
    let named = lacking[..lacking.len().min(NAMED)].join(", ");
    let more = match lacking.len().saturating_sub(NAMED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    Some(format!(
        "the model has learned vectors for {learned} of these {of} labels and none for {named}{more}, so it compares all labels \
         by their words"
    ))
}

/// The keys of a label set's logits, one a label, and one for the background where something of it is left.
pub fn keys(kind: &ModelKind, set: &LabelSet) -> Vec<String> {
    let is_learned = learned(kind, set).is_some();
    let groups = groups(kind, set).into_iter();
    groups
        .enumerate()
        .map(|(place, group)| {
            let is_label = place < set.labels.len();
            let key_of = if is_label && is_learned {
                learned_key
            } else {
                key
            };
            let keys: Vec<String> = group.iter().map(|texts| key_of(texts)).collect();
            if is_label {
                keys.concat()
            } else {
                format!("{FOLDED}\n\n{}", keys.join("\n\n"))
            }
        })
        .collect()
}

/// How the key of a background begins: its logits are those of all its topics, [folded](crate::score::fold).
const FOLDED: &str = "The mean of the odds of:";

/// Under which key the logits of a pair are stored: equal keys mean equal logits for the same model and text.
///
/// A line break parts one text from the next, so one within a text is written as two.
pub fn key(texts: &[String]) -> String {
    let texts: Vec<String> = texts
        .iter()
        .map(|text| text.replace('\n', "\n\n"))
        .collect();
    texts.join("\n")
}

/// The same for a label with a learned vector.
///
/// One line break begins it. No texts have such a key: the first of them is never empty, and a line break that begins it is
/// written as two.
pub fn learned_key(texts: &[String]) -> String {
    format!("\n{LEARNED}\n{}", key(texts))
}

/// How the key of a learned vector begins, after a line break.
const LEARNED: &str = "A learned vector of:";

/// Labels that a model cannot tell apart, as pairs of slugs: their texts are the same but for the size of letters.
/// Two labels with the same words are the same to an NLI model, and differ by their descriptions to an embedding model.
pub fn twins<'a>(kind: &ModelKind, set: &'a LabelSet) -> Vec<(&'a str, &'a str)> {
    if kind.head().is_some() {
        return Vec::new();
    }
    let mut first: HashMap<String, &str> = HashMap::new();
    let mut twins = Vec::new();
    for label in &set.labels {
        let trimmed = Label {
            label: label.label.trim().to_owned(),
            ..label.clone()
        };
        let texts = key(&texts(kind, set, &trimmed)).to_lowercase();
        match first.entry(texts) {
            Entry::Occupied(other) => twins.push((*other.get(), label.slug.as_str())),
            Entry::Vacant(free) => {
                free.insert(&label.slug);
            }
        }
    }
    twins
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::folder::{LearnedLabel, LearnedLabels};
    use crate::scripted::{background, embedding, nli, set};

    #[test]
    fn a_line_break_is_not_the_end_of_a_text() {
        let keys = [
            &["a", "b", "c"][..],
            &["a", "b\nc"],
            &["a\nb", "c"],
            &["a\nb\nc"],
        ]
        .map(|texts| {
            let texts: Vec<String> = texts.iter().map(|text| (*text).to_owned()).collect();
            key(&texts)
        });
        let different: std::collections::BTreeSet<&String> = keys.iter().collect();
        assert_eq!(different.len(), 4, "{keys:?}");
        assert_eq!(keys[0], "a\nb\nc", "as earlier versions stored it");
    }

    #[test]
    fn descriptions_count_for_embedding_models_only() {
        let label = Label {
            slug: "climate".into(),
            label: "climate change".into(),
            descriptions: vec![" Warming and emissions. ".into(), " ".into()],
        };
        let mut set = set(&[]);
        let (nli, embedding) = (nli(), ModelKind::Embedding(embedding(1.0, 1.0, 0.0)));
        assert_eq!(
            texts(&nli, &set, &label),
            ["This text is about climate change."]
        );
        assert_eq!(
            key(&texts(&embedding, &set, &label)),
            "This text is about climate change.\nWarming and emissions."
        );
        let other = Label {
            slug: "politics".into(),
            label: " Climate Change".into(),
            descriptions: vec!["Treaties and parties.".into()],
        };
        set.labels = vec![label, other];
        assert_eq!(twins(&nli, &set), [("climate", "politics")]);
        assert_eq!(twins(&embedding, &set), []);
    }

    /// A model that has learned vectors of these labels, as [`set`] describes them.
    fn having_learned(labels: &[&str]) -> ModelKind {
        let mut head = embedding(1.0, 1.0, 0.0);
        let (worded, set) = (ModelKind::Embedding(head.clone()), set(labels));
        let learned = (1u8..)
            .zip(&set.labels)
            .map(|(number, label)| LearnedLabel {
                texts: texts(&worded, &set, label),
                vector: vec![1.0, f64::from(number)],
            });
        if !labels.is_empty() {
            head.learned = Arc::new(LearnedLabels::of(learned.collect()).unwrap());
        }
        ModelKind::Embedding(head)
    }

    #[test]
    fn a_learned_vector_is_stored_under_a_key_of_its_own() {
        let (kind, worded) = (having_learned(&["food", "sports"]), having_learned(&[]));
        let mut both = set(&["food", "sports"]);
        both.background = Some(background());
        let (keys, by_words) = (keys(&kind, &both), super::keys(&worded, &both));
        assert_eq!(
            keys[0],
            "\nA learned vector of:\nThis text is about food.\nOf it."
        );
        assert!(keys[..2].iter().all(|key| !by_words.contains(key)));
        assert_eq!(keys[2..], by_words[2..], "the background has its words");
        let more = set(&["food", "sports", "chess"]);
        assert_eq!(super::keys(&kind, &more), super::keys(&worded, &more));
        // No texts make such a key.
        let texts = [
            "\nA learned vector of:",
            "This text is about food.",
            "Of it.",
        ];
        assert_ne!(key(&texts.map(str::to_owned)), keys[0]);
    }
}
