//! Lists the differences between the labels of two label sets.

use serde::Serialize;

use topicmill_core::{Label, LabelSet};

/// The kind of a difference between the labels of two label sets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
#[expect(missing_docs, reason = "the words say it")]
pub enum ChangeKind {
    Added,
    Changed,
    Moved,
    Removed,
}

/// A difference between the labels of two label sets.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LabelChange<'a> {
    /// The kind of the difference.
    pub change: ChangeKind,
    /// The slug of the label, which is in both sets unless it was added or removed.
    pub slug: &'a str,
    /// The label in the first set.
    pub a: Option<&'a Label>,
    /// The label in the second set.
    pub b: Option<&'a Label>,
}

/// Lists the labels that differ, matched by slug: the labels of `b` in their order, then the removed ones.
pub fn label_changes<'a>(a: &'a LabelSet, b: &'a LabelSet) -> Vec<LabelChange<'a>> {
    let find = |set: &'a LabelSet, slug: &str| set.labels.iter().find(|label| label.slug == slug);
    // The order breaks ties between equal scores. It is compared only among common labels, so that the labels after a
    // new label do not count as moved.
    let position = |set: &'a LabelSet, other: &'a LabelSet, slug: &str| {
        let labels = set.labels.iter();
        let mut common = labels.filter(|label| find(other, &label.slug).is_some());
        common.position(|label| label.slug == slug)
    };
    let mut changes = Vec::new();
    for label in &b.labels {
        let (slug, before) = (label.slug.as_str(), find(a, &label.slug));
        let change = match before {
            None => ChangeKind::Added,
            Some(before) if before != label => ChangeKind::Changed,
            Some(_) if position(a, b, slug) != position(b, a, slug) => ChangeKind::Moved,
            Some(_) => continue,
        };
        changes.push(LabelChange {
            change,
            slug,
            a: before,
            b: Some(label),
        });
    }
    for label in &a.labels {
        if find(b, &label.slug).is_none() {
            changes.push(LabelChange {
                change: ChangeKind::Removed,
                slug: &label.slug,
                a: Some(label),
                b: None,
            });
        }
    }
    changes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_added_removed_changed_and_moved() {
        let set = |slugs: &str| {
            let label = |slug: &str| Label {
                slug: slug.to_lowercase(),
                label: slug.into(),
                descriptions: vec![],
            };
            let labels = slugs.split_whitespace().map(label).collect();
            LabelSet::new("t".into(), "About {}.".into(), labels)
        };
        let a = set("x y z");
        for (b, expected) in [
            ("x y z", ""),
            ("n x Z", "added n, changed z, removed y"),
            ("y x z", "moved y, moved x"),
        ] {
            let b = set(b);
            let changes = label_changes(&a, &b).into_iter();
            let described = changes.map(|label| format!("{:?} {}", label.change, label.slug));
            let described = described.collect::<Vec<_>>().join(", ");
            assert_eq!(described.to_lowercase(), expected);
        }
    }
}
