//! Formats the YAML front matter of a data card, from which the Hub and `datasets` read the licence and the columns.

use crate::export::columns::DatasetColumn;
use topicmill_core::{ColumnKind, Label, LabelSet};

/// Formats the front matter of a data set with this number of rows.
pub(super) fn front_matter(rows: u64, columns: &[DatasetColumn], set: &LabelSet) -> String {
    let features = columns.iter().map(|column| feature(column, &set.labels));
    format!(
        "---\npretty_name: {name}\nlicense: other\nlicense_name: reddit-terms\n\
         license_link: https://redditinc.com/policies/data-api-terms\n\
         task_categories:\n- text-classification\nsize_categories:\n- {size}\n\
         tags:\n- reddit\n- topicmill\n\
         dataset_info:\n  features:\n{features}\
         configs:\n- config_name: default\n  data_files:\n  - split: train\n    path: data/train-*.parquet\n---\n\n",
        name = quoted(&set.name),
        size = size_category(rows),
        features = features.collect::<String>(),
    )
}

/// Returns the Hub's name for a number of rows.
fn size_category(rows: u64) -> &'static str {
    match rows {
        0..1_000 => "n<1K",
        1_000..10_000 => "1K<n<10K",
        10_000..100_000 => "10K<n<100K",
        100_000..1_000_000 => "100K<n<1M",
        1_000_000..10_000_000 => "1M<n<10M",
        10_000_000..100_000_000 => "10M<n<100M",
        _ => "100M<n<1B",
    }
}

/// Formats a column for the front matter. Labels are declared as classes so that a training script gets their numbers.
fn feature(column: &DatasetColumn, labels: &[Label]) -> String {
    let other_outcomes: &[&str] = match column.name.as_str() {
        "label" => &[],
        "outcome" => &["other", "unsure"],
        name => {
            let kind = match column.kind {
                ColumnKind::Text | ColumnKind::Hex => "dtype: string",
                ColumnKind::Integer => "dtype: int64",
                ColumnKind::Number => "dtype: float64",
                ColumnKind::Boolean => "dtype: bool",
                ColumnKind::Time => "dtype: timestamp[ms, tz=UTC]",
                ColumnKind::Vector => "list: float32",
            };
            return format!("  - name: {}\n    {kind}\n", quoted(name));
        }
    };
    let slugs = labels.iter().map(|label| label.slug.as_str());
    let classes = slugs.chain(other_outcomes.iter().copied()).enumerate();
    let classes: String = classes
        .map(|(number, name)| format!("          '{number}': {}\n", quoted(name)))
        .collect();
    let name = &column.name;
    format!("  - name: {name}\n    dtype:\n      class_label:\n        names:\n{classes}")
}

/// Quotes a YAML string, which may be any JSON string.
fn quoted(text: &str) -> serde_json::Value {
    serde_json::Value::from(text)
}
