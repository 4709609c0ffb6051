//! Formats the data card for a folder, which describes its content, origin and terms, and recognises folders by it.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::columns::DatasetColumn;
use super::counts::Counts;
use super::{ExportError, Subject};
use topicmill_core::{ColumnKind, Label, SourceKind, ThingKind, Timestamp, short_hash};
use topicmill_review::REVIEW_COMMAND;
use topicmill_review::evaluate::Counted;
use topicmill_review::gold::{self, Alpha};
use topicmill_review::quality::{self, MeasuredQuality};
use topicmill_store::{Store, TopicKeywords};

/// The line that lets `export` recognise its own folders.
const SIGN: &str = "This data set was made by topicmill";
/// Maximum number of labels and topics in the card.
const MAX_ROWS: usize = 100;
/// Maximum number of subreddits in the card.
const MAX_SUBREDDITS: usize = 20;

/// Facts from the database for the card.
pub(super) struct Facts {
    subject: Subject,
    /// The model's name, number format and hash.
    model: String,
    /// When all posts had last been compared with Reddit.
    compared_with_reddit: Option<Timestamp>,
    /// When all posts had last been compared with the archive.
    compared_with_archive: Option<Timestamp>,
    keywords: Vec<TopicKeywords>,
    /// `None` for comments, of which there are no random samples.
    quality: Option<MeasuredQuality>,
    /// The number of labelled posts in the database; 0 without a random sample.
    labelled: u64,
    /// The agreement of annotators about things of the data set's kind.
    alpha: Option<Alpha>,
}

impl Facts {
    pub async fn read(store: &Store, subject: &Subject) -> Result<Self, ExportError> {
        let (target, set, purging) = (subject.target, &subject.set, store.purging());
        let models = store.labels().models().await?;
        let model = models.iter().find(|(id, _)| *id == target.model);
        let (mut quality, mut labelled) = (None, 0);
        if subject.kind == ThingKind::Post {
            let (measured, sample) =
                quality::measure(store, subject.kind, target, set, Counted::All).await?;
            let size = sample.and_then(|sample| sample.size());
            labelled = size.map_or(0, |size| size.posts + size.not_covered);
            quality = Some(measured);
        }
        let mut answers = store.gold().answers().await?;
        answers.retain(|gold| gold.answer.fullname.kind() == subject.kind);
        Ok(Self {
            subject: subject.clone(),
            model: model.map_or_else(String::new, |(_, model)| {
                let hash = short_hash(&model.manifest_hash);
                format!("{} ({}), hash {hash}", model.name, model.precision)
            }),
            compared_with_reddit: purging.reconciled_at(SourceKind::Reddit).await?,
            compared_with_archive: purging.reconciled_at(SourceKind::ArcticShift).await?,
            keywords: store.posts().keywords().await?,
            quality,
            labelled,
            alpha: gold::alpha(&answers),
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

/// Formats a section with a table; empty without rows.
fn section<const N: usize>(
    title: &str,
    head: [&str; N],
    rows: impl Iterator<Item = [String; N]>,
) -> String {
    let line = |row: [String; N]| format!("| {} |\n", row.map(|text| cell(&text)).join(" | "));
    let rows: String = rows.map(line).collect();
    if rows.is_empty() {
        return rows;
    }
    let (head, rule) = (head.join(" | "), "|---".repeat(N));
    format!("## {title}\n\n| {head} |\n{rule}|\n{rows}\n")
}

/// Formats the card.
pub(super) fn text(counts: &Counts, columns: &[DatasetColumn], facts: &Facts) -> String {
    let Subject { kind, set, .. } = &facts.subject;
    let mut card = front(counts, columns, facts) + table(counts, facts).as_str();
    let labels = set.labels.iter().map(|label| {
        let about = label.descriptions.join(" · ");
        [format!("`{}`", label.slug), label.label.clone(), about]
    });
    card += &section("Labels", ["label", "in words", "descriptions"], labels);
    card += &facts.quality.as_ref().map_or_else(String::new, shares);
    for (group, counts, max) in [
        ("label", &counts.labels, MAX_ROWS),
        ("topic", &counts.topics, MAX_ROWS),
        ("subreddit", &counts.subreddits, MAX_SUBREDDITS),
    ] {
        let (title, things) = (format!("Number of {kind}s by {group}"), format!("{kind}s"));
        let rows = largest(counts, max).into_iter();
        card += &section(&title, [group, &things], rows);
    }
    let columns = columns.iter().map(|column| {
        let name = format!("`{}`", column.name);
        [name, column.kind_name().to_owned(), column.meaning.clone()]
    });
    card += &section("Columns", ["column", "type", "meaning"], columns);
    let usage = format!(
        "## Use\n\n```python\nfrom datasets import load_dataset\n\n{kind}s = load_dataset(\"PATH TO THIS FOLDER\", \
         split=\"train\")\n```\n\nThe texts belong to the people who wrote them. Reddit's terms apply: if you keep a \
         copy, delete what is deleted on Reddit; `topicmill purge --check-deleted` finds it. To share the \
         {kind}s without their texts, share their ids, which have no labels (`topicmill export ids.txt --format ids \
         --kind {kind}s`).\n"
    );
    card + &usage
}

/// Returns rows with the `max` largest counts, and a row with the sum of the others.
fn largest(counts: &BTreeMap<String, u64>, max: usize) -> Vec<[String; 2]> {
    let mut rows: Vec<(String, u64)> = counts.clone().into_iter().collect();
    rows.sort_by_key(|(_, count)| Reverse(*count));
    let others = rows.split_off(max.min(rows.len()));
    if !others.is_empty() {
        let sum = others.iter().map(|(_, count)| count).sum();
        rows.push((format!("and {} more", others.len()), sum));
    }
    let cells = |(name, count): (String, u64)| [name, count.to_string()];
    rows.into_iter().map(cells).collect()
}

/// Formats the YAML front matter, the title and the introduction.
fn front(counts: &Counts, columns: &[DatasetColumn], facts: &Facts) -> String {
    let size = match counts.rows {
        0..1_000 => "n<1K",
        1_000..10_000 => "1K<n<10K",
        10_000..100_000 => "10K<n<100K",
        100_000..1_000_000 => "100K<n<1M",
        1_000_000..10_000_000 => "1M<n<10M",
        10_000_000..100_000_000 => "10M<n<100M",
        _ => "100M<n<1B",
    };
    let Subject { kind, set, .. } = &facts.subject;
    let features = columns.iter().map(|column| feature(column, &set.labels));
    format!(
        "---\npretty_name: {name}\nlicense: other\nlicense_name: reddit-terms\n\
         license_link: https://redditinc.com/policies/data-api-terms\n\
         task_categories:\n- text-classification\nsize_categories:\n- {size}\n\
         tags:\n- reddit\n- topicmill\n\
         dataset_info:\n  features:\n{features}\
         configs:\n- config_name: default\n  data_files:\n  - split: train\n    path: data/train-*.parquet\n---\n\n\
         # {title}\n\n{SIGN}: Reddit {kind}s, each with the label that a zero-shot model gave it{fit}.\n\n\
         Quality of the labels: {quality}\n\n",
        name = quoted(&set.name),
        title = cell(&set.name),
        features = features.collect::<String>(),
        fit = set.fitted.as_ref().map_or_else(String::new, |fitted| format!(
            ", corrected by a fit to {} gold labels of posts (labels are more accurate for these posts than for others)",
            fitted.provenance.answers
        )),
        quality = quality_line(counts, facts),
    )
}

/// Formats the measured quality and the agreement of annotators. The quality is that of all labelled posts in the
/// database; the data set may have only some.
fn quality_line(counts: &Counts, facts: &Facts) -> String {
    let mut line = match &facts.quality {
        None => "not measured, because random samples contain posts only; `topicmill labels evaluate --kind comments` \
                 compares labels with answers about comments."
            .to_owned(),
        Some(quality) if quality.is_estimate() => {
            let part = if counts.rows - counts.unlabelled < facts.labelled {
                " The answers are about a random sample of labelled posts in the database, including posts that are \
                 not in this data set."
            } else {
                ""
            };
            let waves = match &quality.frame {
                Some(frame) if frame.waves > 1 => format!(
                    " The figures are weighted by {} waves, because later posts have fewer or more answers per post.",
                    frame.waves
                ),
                _ => String::new(),
            };
            format!("{}.{part}{waves}", quality.sentence)
        }
        Some(quality) if quality.sample.is_some() => format!("{}.", quality.sentence),
        Some(MeasuredQuality { sentence, .. }) => {
            format!("{sentence} (`{REVIEW_COMMAND}`, then the page `/review`).")
        }
    };
    if let Some(alpha) = facts.alpha {
        let (posts, kind) = (alpha.posts, facts.subject.kind);
        line.extend([format!(
            " Agreement of annotators on {posts} {kind}s: Krippendorff's alpha {:.2} (95 % interval {:.2} to {:.2}).",
            alpha.value, alpha.low, alpha.high
        )]);
    }
    line
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

/// Formats the labels' shares; empty without estimates.
fn shares(quality: &MeasuredQuality) -> String {
    let posts = match &quality.frame {
        Some(frame) if frame.not_covered > 0 => format!(
            "the {} labelled posts that the estimate speaks of",
            frame.posts
        ),
        _ => "the labelled posts in the database".to_owned(),
    };
    let title = format!(
        "Label shares\n\nOf {posts}: the share with this label (assigned), and the share whose right label it is \
         (estimated from random answers, with the 95 % interval)."
    );
    let rows = quality.shares.iter().take(MAX_ROWS).map(|share| {
        let estimated = &share.estimated;
        let value = 100.0 * estimated.value.unwrap_or_default();
        let [assigned, low, high] =
            [share.assigned, estimated.low, estimated.high].map(|share| 100.0 * share);
        let estimated = format!("{value:.1} % ({low:.1} to {high:.1})");
        [share.label.clone(), format!("{assigned:.1} %"), estimated]
    });
    section(&title, ["label", "assigned", "estimated"], rows)
}

/// Formats the summary table.
fn table(counts: &Counts, facts: &Facts) -> String {
    let Subject { kind, set, .. } = &facts.subject;
    let day = |time: Option<chrono::DateTime<chrono::Utc>>| {
        time.map_or_else(|| "–".to_owned(), |time| time.date_naive().to_string())
    };
    let compared_on = |time: Timestamp| time.as_datetime().date_naive();
    let on_reddit = facts.compared_with_reddit.map_or_else(
        || format!("never: it may contain {kind}s that have been deleted on Reddit since"),
        |time| compared_on(time).to_string(),
    );
    let in_archive = facts.compared_with_archive.map_or_else(String::new, |time| {
        format!(
            "| last comparison with deletions in Arctic Shift, which sees no deletion after 36 hours | {} |\n",
            compared_on(time)
        )
    });
    let selection =
        |row: &TopicKeywords| format!("| collected for a topic | {} |\n", cell(&row.to_string()));
    format!(
        "| what | value |\n|---|---|\n\
         | {kind}s | {rows} |\n| posted | {first} to {last} |\n{keywords}\
         | language | not detected: {kind}s may be in any language |\n| model | {model} |\n\
         | label set | {name}, version {version} |\n\
         | mode | {mode} |\n| threshold | {threshold} |\n\
         | {kind}s that belong to none of the labels (`other`) | {other} |\n\
         | {kind}s whose best score is below the threshold (`unsure`) | {unsure} |\n\
         | {kind}s not labelled yet | {unlabelled} |\n\
         | {kind}s whose text was deleted after the retention time (`text_purged`) | {purged} |\n\
         | last comparison with deletions on Reddit | {on_reddit} |\n{in_archive}\n",
        rows = counts.rows,
        first = day(counts.first),
        last = day(counts.last),
        keywords = facts.keywords.iter().map(selection).collect::<String>(),
        model = cell(&facts.model),
        name = cell(&set.name),
        version = short_hash(&set.hash()),
        mode = set.mode,
        threshold = set.threshold,
        other = counts.other,
        unsure = counts.unsure,
        unlabelled = counts.unlabelled,
        purged = counts.purged,
    )
}
