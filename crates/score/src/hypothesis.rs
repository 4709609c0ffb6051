//! What a label is compared as. Pure: a label set goes in, the texts of each label come out.
//!
//! An NLI model compares a post with one sentence, the hypothesis. An embedding model compares it with the
//! mean of the vectors of several texts: the hypothesis and the label's descriptions, which say in plain
//! words what a bare label leaves open. A classifier compares it with nothing: each of its labels has a logit, and a key
//! under which that is stored.

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

/// The keys of a label set's logits, one a label, and one for the background where something of it is left.
pub fn keys(kind: &ModelKind, set: &LabelSet) -> Vec<String> {
    let groups = groups(kind, set).into_iter();
    groups
        .enumerate()
        .map(|(place, group)| {
            let keys: Vec<String> = group.iter().map(|texts| key(texts)).collect();
            if place < set.labels.len() {
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
    use super::*;
    use crate::folder::{EmbeddingHead, NliClasses};
    use crate::labels::Mode;

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
        let set = LabelSet {
            name: "t".into(),
            template: "This text is about {}.".into(),
            mode: Mode::Single,
            threshold: 0.0,
            temperature: 1.0,
            labels: vec![label.clone()],
            background: None,
        };
        let nli = ModelKind::Nli(NliClasses {
            count: 3,
            entailment: 2,
            contradiction: 0,
            neutral: Some(1),
        });
        let embedding = ModelKind::Embedding(EmbeddingHead {
            output: "v".into(),
            softmax_scale: 1.0,
            sigmoid_scale: 1.0,
            sigmoid_bias: 0.0,
        });
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
        let two = LabelSet {
            labels: vec![label, other],
            ..set
        };
        assert_eq!(twins(&nli, &two), [("climate", "politics")]);
        assert_eq!(twins(&embedding, &two), []);
    }
}
