//! The data card for a folder: its content, its origin and its terms.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::columns::DatasetColumn;
use super::counts::Counts;
use super::{ExportError, Subject};
use topicmill_core::{ColumnKind, Label, SourceKind, Timestamp, short_hash};
use topicmill_review::REVIEW_COMMAND;
use topicmill_review::evaluate::Counted;
use topicmill_review::quality::{self, MeasuredQuality};
use topicmill_store::{Store, TopicKeywords};

/// The line that lets `export` recognise its own folders.
const SIGN: &str = "This data set was made by topicmill";
/// Maximum number of labels and topics in the card.
const MOST_ROWS: usize = 100;

/// Facts from the database for the card.
pub(super) struct Facts {
    model: String,
    precision: String,
    model_hash: String,
    label_set: String,
    version: String,
    mode: String,
    threshold: f64,
    labels: Vec<Label>,
    /// Number of gold labels that the label set was fitted to.
    fitted_to: Option<u64>,
    /// When all posts had last been compared with Reddit, and with the archive.
    reconciled: [Option<Timestamp>; 2],
    keywords: Vec<TopicKeywords>,
    quality: MeasuredQuality,
}

impl Facts {
    pub async fn read(
        store: &Store,
        subject: &Subject,
        counted: Counted,
    ) -> Result<Self, ExportError> {
        let mut models = store.labels().models().await?.into_iter();
        let (model, precision, model_hash) = models
            .find(|(id, _)| *id == subject.target.model)
            .map(|(_, row)| (row.name, row.precision, row.manifest_hash))
            .unwrap_or_default();
        let (set, purging) = (&subject.set, store.purging());
        let (quality, _) = quality::measure(store, subject.target, set, counted).await?;
        Ok(Self {
            model,
            precision,
            model_hash: short_hash(&model_hash).to_owned(),
            label_set: set.name.clone(),
            version: short_hash(&set.hash()).to_owned(),
            mode: set.mode.to_string(),
            threshold: set.threshold,
            labels: set.labels.clone(),
            fitted_to: set.fitted.as_ref().map(|fitted| fitted.provenance.answers),
            reconciled: [
                purging.reconciled_at(SourceKind::Reddit).await?,
                purging.reconciled_at(SourceKind::ArcticShift).await?,
            ],
            keywords: store.posts().keywords().await?,
            quality,
        })
    }
}

/// Returns true if a folder is a data set made by `export`.
pub(super) fn is_export(folder: &Path) -> bool {
    fs::read_to_string(folder.join("README.md")).is_ok_and(|text| text.contains(SIGN))
}

/// Returns the first file in a data set's folder that does not belong to the data set.
pub(super) fn foreign_file(folder: &Path) -> io::Result<Option<PathBuf>> {
    let is_part = |name: &str| name == "README.md" || name == "data";
    let is_data = |name: &str| name.contains("-of-") && name.ends_with(".parquet");
    let foreign = file_other_than(folder, is_part)?;
    match foreign {
        None => file_other_than(&folder.join("data"), is_data),
        foreign => Ok(foreign),
    }
}

/// Returns the first file in a folder, if it exists, whose name is not one of the expected names.
fn file_other_than(
    folder: &Path,
    is_expected: impl Fn(&str) -> bool,
) -> io::Result<Option<PathBuf>> {
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        entries => entries?,
    };
    for entry in entries {
        let name = entry?.file_name();
        if !name.to_str().is_some_and(&is_expected) {
            return Ok(Some(folder.join(name)));
        }
    }
    Ok(None)
}

/// Escapes a cell for a Markdown table.
fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace(['\n', '\r'], " ")
}

/// Formats the card.
pub(super) fn text(counts: &Counts, columns: &[DatasetColumn], facts: &Facts) -> String {
    let mut card = front(counts, columns, facts) + table(counts, facts).as_str();
    card += &descriptions(&facts.labels);
    card += &shares(&facts.quality);
    let tables = [("label", &counts.labels), ("topic", &counts.topics)];
    for (title, rows) in tables.into_iter().filter(|(_, rows)| !rows.is_empty()) {
        card.extend([format!(
            "## Posts by {title}\n\n| {title} | posts |\n|---|---|\n"
        )]);
        for (name, posts) in rows.iter().take(MOST_ROWS) {
            card.extend([format!("| {} | {posts} |\n", cell(name))]);
        }
        if let Some(more @ 1..) = rows.len().checked_sub(MOST_ROWS) {
            card.extend([format!("| and {more} more | |\n")]);
        }
        card.push('\n');
    }
    card += "## Columns\n\n| column | type | meaning |\n|---|---|---|\n";
    for column in columns {
        let (name, meaning) = (cell(&column.name), cell(&column.meaning));
        card.extend([format!(
            "| `{name}` | {} | {meaning} |\n",
            column.kind_name()
        )]);
    }
    card + "\n## Use\n\n```python\nfrom datasets import load_dataset\n\nposts = load_dataset(\"PATH TO THIS FOLDER\", \
         split=\"train\")\n```\n\nThe texts belong to the people who wrote them. Reddit's terms apply: if you keep a \
         copy, delete what is deleted on Reddit; `topicmill purge --check-deleted` finds it. To share the posts \
         without their texts, share their ids, which have no labels (`topicmill export posts.txt --format ids`).\n"
}

/// Formats the YAML front matter, the title and the introduction.
fn front(counts: &Counts, columns: &[DatasetColumn], facts: &Facts) -> String {
    let size = match counts.rows {
        0..1_000 => "n<1K",
        1_000..10_000 => "1K<n<10K",
        10_000..100_000 => "10K<n<100K",
        100_000..1_000_000 => "100K<n<1M",
        1_000_000..10_000_000 => "1M<n<10M",
        _ => "10M<n<100M",
    };
    format!(
        "---\npretty_name: {name}\nlicense: other\nlicense_name: reddit-terms\n\
         license_link: https://redditinc.com/policies/data-api-terms\n\
         task_categories:\n- text-classification\nsize_categories:\n- {size}\n\
         tags:\n- reddit\n- topicmill\n\
         dataset_info:\n  features:\n{features}\
         configs:\n- config_name: default\n  data_files:\n  - split: train\n    path: data/train-*.parquet\n---\n\n\
         # {title}\n\n{SIGN}: Reddit posts, each with the label that a zero-shot model gave it{fit}.\n\n\
         Quality of the labels: {quality}\n\n",
        name = quoted(&facts.label_set),
        title = cell(&facts.label_set),
        features = features(columns, &facts.labels),
        fit = facts.fitted_to.map_or_else(String::new, |answers| format!(
            ", corrected by a fit to {answers} gold labels (labels are more accurate for the posts with gold labels \
             than for others)"
        )),
        quality = quality_line(&facts.quality),
    )
}

/// Formats the measured quality. It covers all labelled posts in the database; the data set may have only some.
fn quality_line(quality: &MeasuredQuality) -> String {
    let sentence = &quality.sentence;
    if quality.is_estimate() {
        return format!(
            "{sentence}. The answers are about a random sample of labelled posts in the database, including posts that \
             are not in this data set."
        );
    }
    format!("{sentence} (`{REVIEW_COMMAND}`, then the page `/review`).")
}

/// Formats the features for the front matter. Labels are declared as classes so that a training script gets their
/// numbers.
fn features(columns: &[DatasetColumn], labels: &[Label]) -> String {
    let classes = |column: &str, outcomes: &[&str]| {
        let names = labels.iter().map(|label| label.slug.as_str());
        let names = names.chain(outcomes.iter().copied()).enumerate();
        let names = names.map(|(class, name)| format!("          '{class}': {}\n", quoted(name)));
        let names: String = names.collect();
        format!("  - name: {column}\n    dtype:\n      class_label:\n        names:\n{names}")
    };
    let feature = |column: &DatasetColumn| {
        let kind = match (column.name.as_str(), column.kind) {
            ("label", _) => return classes("label", &[]),
            ("outcome", _) => return classes("outcome", &["other", "unsure"]),
            (_, ColumnKind::Text | ColumnKind::Hex) => "dtype: string",
            (_, ColumnKind::Integer) => "dtype: int64",
            (_, ColumnKind::Number) => "dtype: float64",
            (_, ColumnKind::Boolean) => "dtype: bool",
            (_, ColumnKind::Time) => "dtype: timestamp[ms, tz=UTC]",
            (_, ColumnKind::Vector) => "list: float32",
        };
        format!("  - name: {}\n    {kind}\n", quoted(&column.name))
    };
    columns.iter().map(feature).collect()
}

/// Quotes a YAML string, which may be any JSON string.
fn quoted(text: &str) -> serde_json::Value {
    serde_json::Value::from(text)
}

/// Formats the labels with their descriptions.
fn descriptions(labels: &[Label]) -> String {
    let row = |label: &Label| {
        let (slug, words) = (cell(&label.slug), cell(&label.label));
        let about = cell(&label.descriptions.join(" · "));
        format!("| `{slug}` | {words} | {about} |\n")
    };
    let rows: String = labels.iter().map(row).collect();
    format!("## Labels\n\n| label | in words | descriptions |\n|---|---|---|\n{rows}\n")
}

/// Formats the labels' shares; empty without estimates.
fn shares(quality: &MeasuredQuality) -> String {
    if quality.shares.is_empty() {
        return String::new();
    }
    let frame = quality.frame.as_ref();
    let posts = match frame.filter(|frame| frame.not_covered > 0) {
        Some(frame) => format!(
            "the {} labelled posts that the estimate speaks of",
            frame.posts
        ),
        None => "the labelled posts in the database".to_owned(),
    };
    let mut text = format!(
        "## Label shares\n\nOf {posts}: the share with this label (assigned), and the share whose right label it is \
         (estimated from random answers, with the 95 % interval).\n\n| label | assigned | estimated |\n|---|---|---|\n"
    );
    for share in quality.shares.iter().take(MOST_ROWS) {
        let (label, estimated) = (cell(&share.label), &share.estimated);
        let value = 100.0 * estimated.value.unwrap_or_default();
        let [assigned, low, high] =
            [share.assigned, estimated.low, estimated.high].map(|share| 100.0 * share);
        text.extend([format!(
            "| {label} | {assigned:.1} % | {value:.1} % ({low:.1} to {high:.1}) |\n"
        )]);
    }
    text + "\n"
}

/// Formats the summary table.
fn table(counts: &Counts, facts: &Facts) -> String {
    let day = |time: Option<chrono::DateTime<chrono::Utc>>| {
        time.map_or_else(|| "–".to_owned(), |time| time.date_naive().to_string())
    };
    let [reddit, archive] = facts
        .reconciled
        .map(|at| at.map(|at| at.as_datetime().date_naive()));
    let on_reddit = reddit.map_or_else(
        || "never: it may contain posts that have been deleted on Reddit since".to_owned(),
        |at| at.to_string(),
    );
    let in_archive = archive.map_or_else(String::new, |at| {
        format!("| last comparison with deletions in Arctic Shift, which reads a post for the last time after 36 hours | {at} |\n")
    });
    let selection =
        |row: &TopicKeywords| format!("| collected for a topic | {} |\n", cell(&row.to_string()));
    let keywords: String = facts.keywords.iter().map(selection).collect();
    format!(
        "| what | value |\n|---|---|\n\
         | posts | {} |\n| posted | {} to {} |\n{keywords}\
         | language | not detected: posts may be in any language |\n| model | {} ({}), hash {} |\n\
         | label set | {}, version {} |\n\
         | mode | {} |\n| threshold | {} |\n| posts that belong to none of the labels (`other`) | {} |\n\
         | posts whose best score is below the threshold (`unsure`) | {} |\n\
         | posts not labelled yet | {} |\n| last comparison with deletions on Reddit | {on_reddit} |\n{in_archive}\n",
        counts.rows,
        day(counts.first),
        day(counts.last),
        cell(&facts.model),
        cell(&facts.precision),
        facts.model_hash,
        cell(&facts.label_set),
        facts.version,
        facts.mode,
        facts.threshold,
        counts.other,
        counts.unsure,
        counts.unlabelled,
    )
}
