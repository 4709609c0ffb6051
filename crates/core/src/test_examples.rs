//! Examples of label sets, backgrounds and models, for tests.

use std::sync::Arc;

use crate::labels::{Background, BackgroundTopic, Label, LabelSet, Mode};
use crate::model_kind::{EmbeddingHead, GliclassHead, ModelKind, NliClasses};

/// Returns an NLI model with three classes; entailment is the last.
pub fn nli() -> ModelKind {
    ModelKind::Nli(NliClasses {
        count: 3,
        entailment: 2,
        contradiction: 0,
        neutral: Some(1),
    })
}

/// Returns a GLiClass model.
pub fn gliclass() -> ModelKind {
    ModelKind::Gliclass(GliclassHead {
        label_id: 0,
        separator_id: 0,
        prompt_first: true,
        max_labels: None,
        task_prompt: String::new(),
    })
}

/// Returns an embedding head with these scales and bias.
pub fn embedding(softmax_scale: f64, sigmoid_scale: f64, sigmoid_bias: f64) -> EmbeddingHead {
    EmbeddingHead {
        output: "v".into(),
        softmax_scale,
        sigmoid_scale,
        sigmoid_bias,
        learned: Arc::default(),
    }
}

/// Returns a label set in single mode, with one description per label.
pub fn set(labels: &[&str]) -> LabelSet {
    let label = |l: &&str| Label {
        slug: (*l).into(),
        label: (*l).into(),
        descriptions: vec!["Of it.".into()],
    };
    LabelSet {
        name: "t".into(),
        template: "This text is about {}.".into(),
        mode: Mode::Single,
        threshold: 0.0,
        temperature: 1.0,
        labels: labels.iter().map(label).collect(),
        background: None,
        fitted: None,
    }
}

/// Returns a background of four topics, three of them for NLI models.
pub fn background() -> Background {
    let topic = |(label, also, nli): &(&str, &str, bool)| BackgroundTopic {
        label: (*label).into(),
        descriptions: vec![format!("All about {label}.")],
        also: vec![(*also).into()],
        nli: *nli,
    };
    let topics = [
        ("video games", "consoles", true),
        ("music", "songs", false),
        ("sports", "football", true),
        ("food", "cooking", true),
    ];
    Background {
        name: "four".into(),
        version: 1,
        weight: 0.5,
        topics: topics.iter().map(topic).collect(),
    }
}

/// A list of tuples, one a line, as `"input", "expected";`.
#[macro_export]
macro_rules! table {
    ($($($cell:expr),+;)+) => { [$(($($cell),+)),+] };
}
