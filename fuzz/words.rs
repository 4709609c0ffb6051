//! Fuzz targets for user input: pipeline files, settings, templates and labels.

use std::collections::HashSet;
use std::io::Write;
use std::path::Path;

use topicmill::pipeline_file::{Pipeline, slug};
use topicmill_core::labels::hypothesis;
use topicmill_core::model_kind::NliClasses;
use topicmill_core::{Label, LabelSet, Listing, ModelKind};

/// Every stage can use an accepted pipeline file.
pub fn pipeline_file(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let parse = || Pipeline::parse(&text, Path::new("p.toml"), Listing::Hot, 100);
    let pipeline = match parse().map_err(|error| error.to_string()) {
        Ok(pipeline) => pipeline,
        Err(message) => {
            return assert!((1..64 * (1_000 + text.len())).contains(&message.len()));
        }
    };
    assert_eq!(parse().unwrap(), pipeline);
    let set = &pipeline.label_set;
    set.validate().unwrap();
    assert_eq!(set.hash().len(), 64);
    let slugs: HashSet<&str> = pipeline.topics.iter().map(|topic| &*topic.slug).collect();
    assert_eq!(slugs.len(), pipeline.topics.len());
    for topic in pipeline.topics.iter().chain(&pipeline.reads(1_000)) {
        assert!((1..=1_000).contains(&topic.limit));
    }
    for (topic, shares) in &pipeline.shares {
        assert!(slugs.contains(topic.as_str()) && !shares.is_empty());
    }
}

/// Accepted settings have every key, and an error never quotes a line, which may contain a secret.
pub fn settings(bytes: &[u8]) {
    const SECRET: &str = "hush0secret";
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(bytes).unwrap();
    match topicmill::config::load(Some(file.path()), [], &[]) {
        Ok(loaded) => assert!(loaded.values.contains_key("database.url")),
        Err(error) => {
            let text = error.to_string();
            // An unknown key is named in the error, and a damaged line may turn the secret into a key.
            let named = text.starts_with("unknown setting");
            assert!(named || !text.contains(SECRET), "{text}");
        }
    }
}

/// The first line is a template, and each other line is a label. An accepted set has one hypothesis per label, and no
/// two equal slugs.
pub fn label_set(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let mut lines = text.split('\n');
    let template = lines.next().unwrap_or_default().to_owned();
    let label = |line: &str| Label {
        slug: slug(line),
        label: line.to_owned(),
        descriptions: Vec::new(),
    };
    let labels: Vec<Label> = lines.take(50).map(label).collect();
    for label in &labels {
        assert_eq!(slug(&label.slug), label.slug, "a slug has a different slug");
        assert!(label.slug.len() <= "percent-".len() * label.label.len());
    }
    let set = LabelSet::new("fuzz".to_owned(), template, labels);
    assert_eq!(set.faults().is_empty(), set.validate().is_ok());
    if set.validate().is_err() {
        return;
    }
    let kind = ModelKind::Nli(NliClasses {
        count: 3,
        entailment: 2,
        contradiction: 0,
        neutral: Some(1),
    });
    let (before, after) = set.template.split_once("{}").unwrap();
    for label in &set.labels {
        let hypothesis = set.hypothesis(label);
        assert_eq!(hypothesis, format!("{before}{}{after}", label.label));
    }
    let keys = hypothesis::keys(&kind, &set);
    assert_eq!(keys.len(), set.labels.len());
    let distinct: HashSet<&String> = keys.iter().collect();
    let texts: HashSet<&str> = set.labels.iter().map(|label| &*label.label).collect();
    assert_eq!(distinct.len(), texts.len(), "two labels share a key");
    assert!(hypothesis::ambiguous_labels(&kind, &set).len() < set.labels.len());
}
