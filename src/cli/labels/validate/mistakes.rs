//! Finds labels and topics that are probably mistakes: alike, read twice, or not suited to the model.

use std::collections::{BTreeMap, BTreeSet};

use topicmill_core::labels::hypothesis;
use topicmill_core::{Label, LabelSet, ModelKind, Topic};
use topicmill_score::folder::ModelFolder;

/// Returns an error message if two labels cannot be distinguished, by any model or by this one.
pub(super) fn indistinguishable(set: &LabelSet, folder: Option<&ModelFolder>) -> Option<String> {
    let mut seen: BTreeMap<Vec<String>, &str> = BTreeMap::new();
    for label in &set.labels {
        let texts = std::iter::once(&label.label)
            .chain(&label.descriptions)
            .map(|text| text.trim().to_lowercase());
        if let Some(other) = seen.insert(texts.collect(), &label.slug) {
            return Some(format!(
                "labels `{other}` and `{}` have the same text, so no model can distinguish them: change or remove one",
                label.slug
            ));
        }
    }
    let folder = folder?;
    let (a, b) = *hypothesis::ambiguous_labels(&folder.kind, set).first()?;
    Some(format!(
        "labels `{a}` and `{b}` have the same text, and `{}` does not read descriptions: change the text of one, or \
         set --model to an embedding model",
        folder.name
    ))
}

/// Returns warnings about labels that differ in form only.
pub(super) fn nearly_same_labels(set: &LabelSet) -> Vec<String> {
    let mut warnings = Vec::new();
    for (n, label) in set.labels.iter().enumerate() {
        for other in &set.labels[..n] {
            // Labels with the same text differ by their descriptions, or were rejected before.
            let text = |label: &Label| label.label.trim().to_lowercase();
            if text(label) != text(other) && nearly_same(&label.label, &other.label) {
                warnings.push(format!(
                    "labels `{}` and `{}` are nearly the same (`{}`, `{}`): posts will get either one by chance",
                    other.slug, label.slug, other.label, label.label
                ));
            }
        }
    }
    warnings
}

/// Returns warnings about subreddits that several topics read.
pub(super) fn shared_subreddits(topics: &[Topic]) -> Vec<String> {
    let mut topics_of: BTreeMap<String, BTreeSet<&str>> = BTreeMap::new();
    for topic in topics {
        for subreddit in &topic.subreddits {
            let slugs = topics_of.entry(subreddit.to_lowercase()).or_default();
            slugs.insert(&topic.slug);
        }
    }
    topics_of.retain(|_, slugs| slugs.len() > 1);
    let warning = |(subreddit, slugs): (String, BTreeSet<&str>)| {
        let slugs: Vec<&str> = slugs.into_iter().collect();
        format!(
            "r/{subreddit} is read for several topics ({}): its posts count for each of them",
            slugs.join(", ")
        )
    };
    topics_of.into_iter().map(warning).collect()
}

/// Returns warnings about labels that do not suit the model.
pub(super) fn model_mismatches(folder: &ModelFolder, set: &LabelSet) -> Vec<String> {
    let missing = hypothesis::missing_learned_vectors(&folder.kind, set);
    let mut warnings = Vec::from_iter(missing);
    let is_bare = |label: &&Label| label.descriptions.iter().all(|text| text.trim().is_empty());
    let bare = set.labels.iter().filter(is_bare);
    let bare: Vec<&str> = bare.map(|label| label.slug.as_str()).collect();
    if matches!(folder.kind, ModelKind::Embedding(_)) && !bare.is_empty() {
        warnings.push(format!(
            "labels that have no descriptions: {}; `{}` is more accurate with one or two sentences about each label",
            bare.join(", "),
            folder.name
        ));
    }
    if let Some(template) = &folder.template
        && *template != set.template
    {
        warnings.push(format!(
            "`{}` was trained with the template `{template}`, but the label set has `{}`",
            folder.name, set.template
        ));
    }
    warnings
}

/// Returns true if two labels differ only in word order, plurals, articles or conjunctions, or by a typo.
fn nearly_same(a: &str, b: &str) -> bool {
    let (a, b) = (normalize(a), normalize(b));
    let longer = a.chars().count().max(b.chars().count());
    // In a shorter word, one letter makes another word, as in cars and cats.
    a == b || strsim::levenshtein(&a, &b) <= longer / 8
}

/// Normalises a label: lower case, sorted words, without articles, conjunctions and a plural `s`.
fn normalize(label: &str) -> String {
    let lower = label.to_lowercase();
    let mut words: Vec<&str> = lower
        .split(|c: char| !c.is_alphanumeric())
        .filter(|word| !["", "a", "an", "and", "the", "of", "or"].contains(word))
        .map(|word| match word.strip_suffix('s') {
            Some(stem) if stem.len() > 2 => stem,
            _ => word,
        })
        .collect();
    words.sort_unstable();
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_that_differ_in_form_only_are_nearly_the_same() {
        for (a, b) in [
            ("movie", "Movies"),
            ("the history of art", "art history"),
            ("personal finance", "personal finanse"),
        ] {
            assert!(nearly_same(a, b), "{a} / {b}");
        }
        for (a, b) in [("cars", "cats"), ("men's health", "women's health")] {
            assert!(!nearly_same(a, b), "{a} / {b}");
        }
    }
}
