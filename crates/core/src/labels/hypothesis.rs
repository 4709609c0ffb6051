//! Texts that represent a label. The input is a label set; the output is the texts of each label.
//!
//! An NLI model compares a post with one sentence, the hypothesis. An embedding model compares the post with the mean
//! vector of several texts: the hypothesis and the label's descriptions, which clarify a short label. A classifier
//! reads no label texts; they only serve as the key of the stored logit. A GLiClass model reads all labels at once,
//! without descriptions, so the key of a logit includes a hash of the ordered label set.
//!
//! An embedding model may have [learned](crate::model_kind) vectors for certain labels, which are looked up by the
//! labels' texts. They are used only if every label of the set has one, because learned and computed vectors are not
//! comparable. The background always uses computed vectors.

use std::collections::HashMap;

use sha2::{Digest, Sha256};

use crate::{Label, LabelSet, ModelKind, first_few, hex, to_json};

/// Returns the texts of a label, never empty: one for an NLI model, one or more for an embedding model. For a
/// classifier, the only text is derived from the label's name; for a GLiClass model, it is the label itself.
pub fn texts(kind: &ModelKind, set: &LabelSet, label: &Label) -> Vec<String> {
    if kind.head().is_some() {
        return vec![format!("class {}", label.label)];
    }
    if matches!(kind, ModelKind::Gliclass(_)) {
        return vec![label.label.clone()];
    }
    let mut texts = vec![set.hypothesis(label)];
    if matches!(kind, ModelKind::Embedding(_)) {
        let trimmed = label.descriptions.iter().map(|text| text.trim());
        let descriptions = trimmed.filter(|text| !text.is_empty());
        texts.extend(descriptions.map(str::to_owned));
    }
    texts
}

/// Returns the texts that posts are compared with, in groups: one group per label, with a single list of
/// [texts](texts), then, if any [background topic](LabelSet::background_for) remains, one group with a list per topic.
pub fn groups(kind: &ModelKind, set: &LabelSet) -> Vec<Vec<Vec<String>>> {
    let labels = set.labels.iter().map(|label| vec![texts(kind, set, label)]);
    let topics = set.background_for(kind).into_iter();
    let background: Vec<_> = topics
        .map(|topic| {
            let label = Label {
                descriptions: topic.descriptions.clone(),
                ..Label::new(&topic.label)
            };
            texts(kind, set, &label)
        })
        .collect();
    labels
        .chain((!background.is_empty()).then_some(background))
        .collect()
}

/// Returns the learned vectors of a label set, in the order of its labels, if every label has one.
pub fn learned<'k>(kind: &'k ModelKind, set: &LabelSet) -> Option<Vec<&'k [f64]>> {
    learned_by_label(kind, set)?.into_iter().collect()
}

/// Returns each label's learned vector, if it has one; `None` if the model has no learned vectors.
fn learned_by_label<'k>(kind: &'k ModelKind, set: &LabelSet) -> Option<Vec<Option<&'k [f64]>>> {
    let ModelKind::Embedding(head) = kind else {
        return None;
    };
    let vector = |label| head.learned.vector(&texts(kind, set, label));
    (!head.learned.is_empty()).then(|| set.labels.iter().map(vector).collect())
}

/// Returns a user-facing explanation if the model has learned vectors for some of the labels but not all of them.
pub fn missing_learned_vectors(kind: &ModelKind, set: &LabelSet) -> Option<String> {
    /// Maximum number of labels to name.
    const NAMED: usize = 3;
    let vectors = learned_by_label(kind, set)?;
    let labels = set.labels.iter().zip(&vectors);
    let unlearned = labels.filter(|(_, vector)| vector.is_none());
    let lacking: Vec<&str> = unlearned.map(|(label, _)| label.slug.as_str()).collect();
    let (all, learned) = (vectors.len(), vectors.len() - lacking.len());
    if learned == 0 || lacking.is_empty() {
        return None;
    }
    Some(format!(
        "the model has learned vectors for {learned} of these {all} labels, but not for {}, so it uses the texts of \
         all labels",
        first_few(&lacking, NAMED)
    ))
}

/// Returns the keys to store logits under: one per label, then one for the background, if any of its topics remains.
pub fn keys(kind: &ModelKind, set: &LabelSet) -> Vec<String> {
    let mut groups = groups(kind, set);
    if matches!(kind, ModelKind::Gliclass(_)) {
        add_positions(&mut groups);
    }
    let background = groups.split_off(set.labels.len());
    let label_key = match learned(kind, set) {
        Some(_) => learned_key,
        None => key,
    };
    let labels = groups.iter().map(|group| label_key(&group[0]));
    let background = background.iter().map(|topics| background_key(topics));
    labels.chain(background).collect()
}

/// The input of a single inference.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pass {
    /// A text with one label: an NLI model.
    Pair,
    /// A text, alone or with all labels: one inference scores this many pairs of a text and a label.
    Text(u64),
}

impl Pass {
    /// Returns the kind of inference that scores a label set. The background counts as one label.
    pub fn of(kind: &ModelKind, set: &LabelSet) -> Self {
        match kind {
            ModelKind::Nli(_) => Self::Pair,
            ModelKind::Embedding(_) | ModelKind::Classifier(_) | ModelKind::Gliclass(_) => {
                let background = usize::from(set.prior_for(kind).is_some());
                Self::Text((set.labels.len() + background) as u64)
            }
        }
    }

    /// Returns a plural noun for messages.
    pub const fn unit(self) -> &'static str {
        match self {
            Self::Pair => "pairs",
            Self::Text(_) => "texts",
        }
    }

    /// Returns the number of inferences that score `pairs`.
    pub const fn count(self, pairs: u64) -> u64 {
        match self {
            Self::Pair => pairs,
            Self::Text(labels) => pairs.div_ceil(labels),
        }
    }
}

/// Adds each label's position and a hash of the set to its texts, because a GLiClass model's logits depend on both.
fn add_positions(groups: &mut [Vec<Vec<String>>]) {
    let words: Vec<&[String]> = groups.iter().flatten().map(Vec::as_slice).collect();
    let set = hex(&Sha256::digest(to_json(&words))[..16]);
    for (place, texts) in (1..).zip(groups.iter_mut().flatten()) {
        texts.push(format!("Label {place} of the set {set}."));
    }
}

/// Returns the key to store a pair's logits under: equal keys mean equal logits for the same model and text.
///
/// A line break separates the texts, so line breaks within a text are doubled.
pub fn key(texts: &[String]) -> String {
    let escape = |text: &String| text.replace('\n', "\n\n");
    texts.iter().map(escape).collect::<Vec<_>>().join("\n")
}

/// Prefix of a background's key.
const FOLDED: &str = "The mean of the odds of:";

/// Returns the key to store the [fold](crate::score::fold) of the topics' logits under.
///
/// An empty line separates the topics. A line break within a text would look like one, so topics with line breaks are
/// written as JSON, after a single line break as in [`learned_key`].
fn background_key(topics: &[Vec<String>]) -> String {
    if topics.iter().flatten().any(|text| text.contains('\n')) {
        return format!("\n{FOLDED}\n{}", to_json(topics));
    }
    let topics: Vec<String> = topics.iter().map(|texts| key(texts)).collect();
    format!("{FOLDED}\n\n{}", topics.join("\n\n"))
}

/// Prefix of a learned vector's key, after a line break.
const LEARNED: &str = "A learned vector of:";

/// Returns the key of a label with a learned vector.
///
/// It begins with a single line break. A key made from texts never does: its first text is not empty, and a line break
/// at the start of that text is doubled.
pub fn learned_key(texts: &[String]) -> String {
    format!("\n{LEARNED}\n{}", key(texts))
}

/// Returns pairs of slugs whose labels the model cannot distinguish: their texts are equal except for case. An NLI
/// model cannot distinguish two labels with equal words; an embedding model can, if their descriptions differ.
pub fn ambiguous_labels<'a>(kind: &ModelKind, set: &'a LabelSet) -> Vec<(&'a str, &'a str)> {
    if kind.head().is_some() {
        return Vec::new();
    }
    let mut first: HashMap<String, &str> = HashMap::new();
    let mut ambiguous = Vec::new();
    for label in &set.labels {
        let trimmed = Label {
            label: label.label.trim().to_owned(),
            ..label.clone()
        };
        let texts = key(&texts(kind, set, &trimmed)).to_lowercase();
        let earlier = *first.entry(texts).or_insert(&label.slug);
        if earlier != label.slug {
            ambiguous.push((earlier, label.slug.as_str()));
        }
    }
    ambiguous
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::model_kind::{LearnedLabel, LearnedLabels};
    use crate::test_examples::{background, embedding, gliclass, nli, set};

    #[test]
    fn line_breaks_within_a_text_are_escaped_in_its_key() {
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
    fn a_topic_with_a_line_break_has_a_different_key_from_two_topics() {
        let key = |topics: &[&str]| {
            let topics = topics.iter().map(|text| vec![(*text).to_owned()]);
            background_key(&topics.collect::<Vec<_>>())
        };
        let two = key(&["a", "b"]);
        assert_eq!(two, "The mean of the odds of:\n\na\n\nb", "as it is stored");
        assert_ne!(key(&["a\nb"]), two);
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
        assert_eq!(ambiguous_labels(&nli, &set), [("climate", "politics")]);
        assert_eq!(ambiguous_labels(&embedding, &set), []);
    }

    #[test]
    fn a_key_of_gliclass_names_the_whole_set() {
        let kind = gliclass();
        let mut set = set(&["food", "sports"]);
        assert_eq!(texts(&kind, &set, &set.labels[0]), ["food"]);
        let own = keys(&kind, &set);
        assert!(own[0].starts_with("food\nLabel 1 of the set "), "{own:?}");
        let keys = |set: &LabelSet| super::keys(&kind, set);
        // Neither descriptions nor the template are read.
        set.template = "About {}.".into();
        set.labels[0].descriptions.clear();
        assert_eq!(keys(&set), own);
        set.background = Some(background());
        let with_topics = keys(&set);
        assert_eq!(with_topics.len(), 3);
        assert!(with_topics[..2].iter().all(|key| !own.contains(key)));
        set.background = None;
        set.labels.reverse();
        assert!(keys(&set).iter().all(|key| !own.contains(key)));
        // Two labels with the same words have different logits.
        set.labels[0].label = "food".into();
        assert_ne!(keys(&set)[0], keys(&set)[1]);
    }

    /// Returns an embedding model with learned vectors for these labels of [`set`].
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
            head.learned = Arc::new(LearnedLabels::new(learned.collect()).unwrap());
        }
        ModelKind::Embedding(head)
    }

    #[test]
    fn a_learned_vector_has_its_own_key() {
        let (kind, worded) = (having_learned(&["food", "sports"]), having_learned(&[]));
        let mut both = set(&["food", "sports"]);
        both.background = Some(background());
        let (keys, by_words) = (keys(&kind, &both), super::keys(&worded, &both));
        assert_eq!(
            keys[0],
            "\nA learned vector of:\nThis text is about food.\nOf it."
        );
        assert!(keys[..2].iter().all(|key| !by_words.contains(key)));
        assert_eq!(keys[2..], by_words[2..], "the background uses its texts");
        let more = set(&["food", "sports", "chess"]);
        assert_eq!(super::keys(&kind, &more), super::keys(&worded, &more));
        // No list of texts produces this key.
        let texts = [
            "\nA learned vector of:",
            "This text is about food.",
            "Of it.",
        ];
        assert_ne!(key(&texts.map(str::to_owned)), keys[0]);
    }
}
