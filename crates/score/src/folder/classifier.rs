//! The head of a classifier: the labels that it was trained on, and the function that turns its logits into scores.
//!
//! The input is `id2label`, or else `label2id` or `num_labels`, and `problem_type` from `config.json`. The output is
//! the labels in the order of the logits, and the function that the transformers text-classification pipeline applies
//! by default.

use std::collections::{BTreeMap, HashSet};

use serde_json::Value;

use super::config::Config;
use topicmill_core::model_kind::{ClassifierHead, HeadFunction};

/// Number of labels that transformers assumes if a model names none.
const DEFAULT_LABELS: usize = 2;
/// Maximum number of labels without names; a damaged number could otherwise exhaust the memory.
const MAX_UNNAMED: usize = 10_000;

impl Config {
    /// Reads the head of a classifier.
    pub fn classifier_head(&self) -> Result<ClassifierHead, String> {
        let num_labels = self.num_labels;
        let id2label = self.id2label.as_ref();
        let key = id2label.map_or("label2id", |_| "id2label");
        let labels = match (&self.id2label, &self.label2id) {
            (Some(names), _) => names_by_number(key, names.iter().map(by_number))?,
            (None, Some(numbers)) => names_by_number(key, numbers.iter().map(by_name))?,
            (None, None) => match num_labels.unwrap_or(DEFAULT_LABELS) {
                // These are the default names in transformers.
                count @ ..=MAX_UNNAMED => (0..count).map(|n| format!("LABEL_{n}")).collect(),
                count => {
                    return Err(format!(
                        "`num_labels` is {count}; add `id2label` with a name for each logit"
                    ));
                }
            },
        };
        if labels.is_empty() {
            return Err("it has no labels; add `id2label` with a name for each logit".to_owned());
        }
        if let Some(count) = num_labels
            && count != labels.len()
        {
            return Err(format!(
                "`num_labels` is {count}, but `{key}` has {} names; correct the wrong one",
                labels.len()
            ));
        }
        Ok(ClassifierHead {
            function: function_of(self.problem_type.as_deref(), labels.len())?,
            labels,
        })
    }
}

/// Returns the function that the text-classification pipeline applies, by the same rules.
fn function_of(problem_type: Option<&str>, labels: usize) -> Result<HeadFunction, String> {
    match problem_type {
        Some("regression") => Ok(HeadFunction::Identity),
        Some("multi_label_classification") => Ok(HeadFunction::Sigmoid),
        Some("single_label_classification") | None if labels == 1 => Ok(HeadFunction::Sigmoid),
        Some("single_label_classification") | None => Ok(HeadFunction::Softmax),
        Some(other) => Err(format!(
            "its `problem_type` is `{other}`; transformers supports regression, single_label_classification and \
             multi_label_classification"
        )),
    }
}

/// Number and name of a label; `None` if they have the wrong types.
type NumberedLabel = Option<(usize, String)>;

/// Reads an entry of `id2label`.
fn by_number((number, name): (&String, &Value)) -> NumberedLabel {
    Some((number.parse().ok()?, name.as_str()?.to_owned()))
}

/// Reads an entry of `label2id`.
fn by_name((name, number): (&String, &Value)) -> NumberedLabel {
    Some((usize::try_from(number.as_u64()?).ok()?, name.clone()))
}

/// Sorts names by number; the numbers must be 0, 1, 2, … without a gap.
fn names_by_number(
    key: &str,
    entries: impl Iterator<Item = NumberedLabel>,
) -> Result<Vec<String>, String> {
    let mut names = BTreeMap::new();
    for entry in entries {
        let Some((number, name)) = entry else {
            return Err(format!(
                "`{key}` does not map numbers to names or names to numbers; correct it"
            ));
        };
        if name.trim().is_empty() {
            return Err(format!(
                "`{key}` has an empty name for label {number}; correct it"
            ));
        }
        if names.insert(number, name).is_some() {
            return Err(format!("`{key}` has the number {number} twice; correct it"));
        }
    }
    let mut places = (0..).zip(names.keys());
    if let Some((place, number)) = places.find(|(place, number)| place != *number) {
        return Err(format!(
            "`{key}` has a gap: it names {number} but not {place}; name each logit, starting at 0"
        ));
    }
    let mut seen = HashSet::new();
    if let Some(twice) = names.values().find(|name| !seen.insert(name.as_str())) {
        return Err(format!(
            "`{key}` has the name `{twice}` twice; give each logit its own"
        ));
    }
    Ok(names.into_values().collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use topicmill_core::table;

    fn read(config: &str) -> Result<ClassifierHead, String> {
        serde_json::from_str::<Config>(config)
            .unwrap()
            .classifier_head()
    }

    #[test]
    fn labels_are_in_the_order_of_the_logits() {
        let eleven: Vec<String> = (0..11).map(|n| format!(r#""{n}":"l{n}""#)).collect();
        let head = read(&format!(r#"{{"id2label":{{{}}}}}"#, eleven.join(","))).unwrap();
        assert_eq!(head.labels[10], "l10", "sorted by number, not as text");
        assert_eq!(head.function, HeadFunction::Softmax);
        let head = read(r#"{"label2id":{"b":1,"a":0}}"#).unwrap();
        assert_eq!(head.labels, ["a", "b"]);
        assert!(!head.is_unnamed());
        let head = read("{}").unwrap();
        assert_eq!(head.labels, ["LABEL_0", "LABEL_1"]);
        assert!(head.is_unnamed() && head.nli_advice().contains("`entailment`"));
        let four = read(r#"{"num_labels":4}"#).unwrap();
        assert!(four.is_unnamed() && four.nli_advice().is_empty());
        assert_eq!(read(r#"{"num_labels":3}"#).unwrap().labels.len(), 3);
    }

    #[test]
    fn the_default_function_matches_the_pipeline() {
        let one = r#""id2label":{"0":"LABEL_0"}"#;
        let two = r#""id2label":{"0":"a","1":"b"}"#;
        for (labels, problem, function) in [
            (one, "", HeadFunction::Sigmoid),
            (two, "", HeadFunction::Softmax),
            (one, "regression", HeadFunction::Identity),
            (two, "regression", HeadFunction::Identity),
            (two, "multi_label_classification", HeadFunction::Sigmoid),
            (two, "single_label_classification", HeadFunction::Softmax),
            (one, "single_label_classification", HeadFunction::Sigmoid),
        ] {
            let problem_type = match problem {
                "" => "null".to_owned(),
                word => format!("\"{word}\""),
            };
            let head = read(&format!(r#"{{{labels},"problem_type":{problem_type}}}"#)).unwrap();
            assert_eq!(head.function, function, "{labels} {problem}");
        }
        let error = read(r#"{"problem_type":"ranking"}"#).unwrap_err();
        assert!(error.contains("`ranking`"), "{error}");
    }

    #[test]
    fn names_that_do_not_match_the_logits_are_rejected() {
        for (config, message) in table! {
            r#"{"id2label":{"0":"a","2":"b"}}"#, "names 2 but not 1";
            r#"{"id2label":{"1":"a","2":"b"}}"#, "names 1 but not 0";
            r#"{"id2label":{"0":"a","1":"a"}}"#, "the name `a` twice";
            r#"{"id2label":{"0":"a","00":"b"}}"#, "the number 0 twice";
            r#"{"id2label":{"0":"a","1":" "}}"#, "empty name for label 1";
            r#"{"id2label":{"0":7}}"#, "does not map";
            r#"{"id2label":{"x":"a"}}"#, "does not map";
            r#"{"label2id":{"a":-1}}"#, "does not map";
            r#"{"label2id":{"a":0,"b":0}}"#, "the number 0 twice";
            r#"{"id2label":{}}"#, "has no labels";
            r#"{"num_labels":1000000000000}"#, "add `id2label`";
            r#"{"num_labels":3,"label2id":{"a":0,"b":1}}"#, "but `label2id` has 2 names";
            r#"{"num_labels":3,"id2label":{"0":"a","1":"b"}}"#, "`num_labels` is 3";
        } {
            let error = read(config).unwrap_err();
            assert!(error.contains(message), "{config}: {error}");
        }
    }
}
