//! Parses the Prometheus text format and rejects violations of its rules:
//! <https://prometheus.io/docs/instrumenting/exposition_formats/>.

use std::collections::{BTreeMap, BTreeSet};

/// A metric family as exported.
#[derive(Debug, Default)]
pub struct Family {
    pub kind: String,
    pub help: String,
    /// Values by sample name and labels.
    pub samples: BTreeMap<(String, BTreeMap<String, String>), f64>,
}

fn is_name(text: &str, first: &str) -> bool {
    let rest = |c: char| c.is_ascii_alphanumeric() || first.contains(c);
    text.starts_with(|c: char| c.is_ascii_alphabetic() || first.contains(c))
        && text.chars().all(rest)
}

/// Parses a response into metric families by name.
///
/// # Panics
/// Panics if the text violates a rule of the format.
pub fn read(text: &str) -> BTreeMap<String, Family> {
    assert!(
        text.ends_with('\n'),
        "the last line does not end with a newline"
    );
    let mut families: BTreeMap<String, Family> = BTreeMap::new();
    let mut current = String::new();
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let (name, help) = rest.split_once(' ').expect(line);
            assert!(is_name(name, "_:"), "{line}");
            assert!(!help.is_empty(), "{line}");
            let family = Family {
                help: help.to_owned(),
                ..Family::default()
            };
            // A family must not be interrupted.
            assert!(families.insert(name.to_owned(), family).is_none(), "{line}");
            name.clone_into(&mut current);
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').expect(line);
            assert_eq!(name, current, "TYPE follows HELP");
            assert!(["counter", "gauge"].contains(&kind), "{line}");
            kind.clone_into(&mut families.get_mut(name).unwrap().kind);
        } else {
            let (name, labels, value) = sample(line);
            let family = families.get_mut(&current).expect(line);
            assert_eq!(name, current, "{line}");
            let value = value.parse().expect(line);
            let key = (name, labels);
            assert!(
                family.samples.insert(key, value).is_none(),
                "duplicate sample: {line}"
            );
        }
    }
    for (name, family) in &families {
        check(name, family);
    }
    families
}

/// Splits a sample, such as `name{label="value",…} 1`, into name, labels and value.
fn sample(line: &str) -> (String, BTreeMap<String, String>, String) {
    let end = line.find(['{', ' ']).expect(line);
    let (name, mut rest) = line.split_at(end);
    assert!(is_name(name, "_:"), "{line}");
    let mut labels = BTreeMap::new();
    if let Some(inner) = rest.strip_prefix('{') {
        rest = inner;
        while !rest.starts_with('}') {
            let (label, after) = rest.split_once("=\"").expect(line);
            assert!(is_name(label, "_") && !label.starts_with("__"), "{line}");
            let mut value = String::new();
            let mut chars = after.char_indices();
            let close = loop {
                match chars.next().expect(line) {
                    (at, '"') => break at,
                    (_, '\\') => value.push(match chars.next().expect(line).1 {
                        'n' => '\n',
                        c @ ('\\' | '"') => c,
                        c => panic!("\\{c} in {line}"),
                    }),
                    (_, c) => value.push(c),
                }
            };
            assert!(labels.insert(label.to_owned(), value).is_none(), "{line}");
            rest = &after[close + 1..];
            rest = rest.strip_prefix(',').unwrap_or(rest);
        }
        rest = &rest[1..];
    }
    let value = rest.strip_prefix(' ').expect(line);
    (name.to_owned(), labels, value.to_owned())
}

/// Checks some of the rules that `promtool check metrics` also checks.
fn check(name: &str, family: &Family) {
    assert!(!family.kind.is_empty() && !family.help.is_empty(), "{name}");
    assert!(!family.samples.is_empty(), "{name}");
    let is_counter = family.kind == "counter";
    assert_eq!(is_counter, name.ends_with("_total"), "{name}");
    let names: BTreeSet<BTreeSet<&String>> = family
        .samples
        .keys()
        .map(|(_, labels)| labels.keys().collect())
        .collect();
    assert_eq!(
        names.len(),
        1,
        "samples of {name} have different label names"
    );
    for (key, value) in &family.samples {
        assert!(value.is_finite(), "{key:?}");
        assert!(*value >= 0.0 || family.kind == "gauge", "{key:?}");
    }
}
