//! Formats the data card of a folder in Markdown: its content, origin and terms.

mod facts;
mod front_matter;

use std::cmp::Reverse;
use std::collections::BTreeMap;

pub(super) use self::facts::Facts;
use self::front_matter::front_matter;
use super::Subject;
use super::columns::DatasetColumn;
use super::counts::Counts;
use topicmill_core::{ThingKind, Timestamp, short_hash};
use topicmill_review::REVIEW_COMMAND;
use topicmill_review::gold::Alpha;
use topicmill_review::quality::MeasuredQuality;
use topicmill_store::TopicKeywords;

/// The line of the card by which `export` recognises its own folders.
pub(super) const SIGN: &str = "This data set was made by topicmill";
/// Maximum number of labels and topics in the card.
const MAX_ROWS: usize = 100;
/// Maximum number of subreddits in the card.
const MAX_SUBREDDITS: usize = 20;

/// Formats the card.
pub(super) fn text(counts: &Counts, columns: &[DatasetColumn], facts: &Facts) -> String {
    let Subject { kind, set, .. } = &facts.subject;
    let things = kind.plural();
    let mut card = front_matter(counts.rows, columns, set);
    card += &introduction(counts, facts);
    card += &summary(counts, facts);
    let labels = set.labels.iter().map(|label| {
        let about = label.descriptions.join(" · ");
        [format!("`{}`", label.slug), label.label.clone(), about]
    });
    let head = ["label", "in words", "descriptions"];
    card += &section("Labels", None, head, labels);
    card += &facts.quality.as_ref().map_or_else(String::new, shares);
    for (group, of_groups, max) in [
        ("label", &counts.labels, MAX_ROWS),
        ("topic", &counts.topics, MAX_ROWS),
        ("subreddit", &counts.subreddits, MAX_SUBREDDITS),
    ] {
        let title = format!("Number of {things} by {group}");
        let rows = largest(of_groups, max).into_iter();
        card += &section(&title, None, [group, things], rows);
    }
    let meanings = columns.iter().map(|column| {
        let name = format!("`{}`", column.name);
        [name, column.kind_name().to_owned(), column.meaning.clone()]
    });
    card += &section("Columns", None, ["column", "type", "meaning"], meanings);
    card + &usage(things)
}

/// Formats the title and the introduction.
fn introduction(counts: &Counts, facts: &Facts) -> String {
    let Subject { kind, set, .. } = &facts.subject;
    let fit = set.fitted.as_ref().map_or_else(String::new, |fitted| {
        format!(
            ", corrected by a fit to {} gold labels of posts (labels are more accurate for these posts than for others)",
            fitted.provenance.answers
        )
    });
    format!(
        "# {title}\n\n{SIGN}: Reddit {things}, each with the label that a model gave it{fit}.\n\n\
         Quality of the labels: {quality}{agreement}\n\n",
        title = cell(&set.name),
        things = kind.plural(),
        quality = quality(counts, facts),
        agreement = facts
            .alpha
            .map_or_else(String::new, |alpha| agreement(alpha, *kind)),
    )
}

/// Describes the measured quality. It is that of all labelled posts in the database; the data set may have only some.
fn quality(counts: &Counts, facts: &Facts) -> String {
    match &facts.quality {
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
    }
}

/// Describes the agreement of annotators, with a leading space.
fn agreement(alpha: Alpha, kind: ThingKind) -> String {
    format!(
        " Agreement of annotators on {} {}: Krippendorff's alpha {:.2} (95 % interval {:.2} to {:.2}).",
        alpha.posts,
        kind.plural(),
        alpha.value,
        alpha.low,
        alpha.high
    )
}

/// Formats the summary table.
fn summary(counts: &Counts, facts: &Facts) -> String {
    let Subject { kind, set, .. } = &facts.subject;
    let things = kind.plural();
    let day = |time: Option<chrono::DateTime<chrono::Utc>>| {
        time.map_or_else(|| "–".to_owned(), |time| time.date_naive().to_string())
    };
    let compared_on = |time: Timestamp| time.as_datetime().date_naive();
    let on_reddit = facts.compared_with_reddit.map_or_else(
        || format!("never: it may contain {things} that have been deleted on Reddit since"),
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
         | {things} | {rows} |\n| posted | {first} to {last} |\n{keywords}\
         | language | not detected: {things} may be in any language |\n| model | {model} |\n\
         | label set | {name}, version {version} |\n\
         | mode | {mode} |\n| threshold | {threshold} |\n\
         | {things} that belong to none of the labels (`other`) | {other} |\n\
         | {things} whose best score is below the threshold (`unsure`) | {unsure} |\n\
         | {things} not labelled yet | {unlabelled} |\n\
         | {things} whose text was deleted after the retention time (`text_purged`) | {purged} |\n\
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

/// Formats the labels' shares; empty without estimates.
fn shares(quality: &MeasuredQuality) -> String {
    let posts = match &quality.frame {
        Some(frame) if frame.not_covered > 0 => format!(
            "the {} labelled posts that the estimate speaks of",
            frame.posts
        ),
        _ => "the labelled posts in the database".to_owned(),
    };
    let intro = format!(
        "Of {posts}: the share with this label (assigned), and the share whose right label it is (estimated from random \
         answers, with the 95 % interval)."
    );
    let rows = quality.shares.iter().take(MAX_ROWS).map(|share| {
        let estimate = &share.estimated;
        let value = 100.0 * estimate.value.unwrap_or_default();
        let [assigned, low, high] =
            [share.assigned, estimate.low, estimate.high].map(|share| 100.0 * share);
        let estimated = format!("{value:.1} % ({low:.1} to {high:.1})");
        [share.label.clone(), format!("{assigned:.1} %"), estimated]
    });
    let head = ["label", "assigned", "estimated"];
    section("Label shares", Some(&intro), head, rows)
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

/// Formats how to load the data set, and the terms of its use.
fn usage(things: &str) -> String {
    format!(
        "## Use\n\n```python\nfrom datasets import load_dataset\n\n{things} = load_dataset(\"PATH TO THIS FOLDER\", \
         split=\"train\")\n```\n\nThe texts belong to the people who wrote them. Reddit's terms apply: if you keep a \
         copy, delete what is deleted on Reddit; `topicmill purge --check-deleted` finds it. To share the \
         {things} without their texts, share their ids, which have no labels (`topicmill export ids.txt --format ids \
         --kind {things}`).\n"
    )
}

/// Formats a section: an introduction, if there is one, and a table; empty without rows.
fn section<const N: usize>(
    title: &str,
    intro: Option<&str>,
    head: [&str; N],
    rows: impl Iterator<Item = [String; N]>,
) -> String {
    let line = |row: [String; N]| format!("| {} |\n", row.map(|text| cell(&text)).join(" | "));
    let rows: String = rows.map(line).collect();
    if rows.is_empty() {
        return rows;
    }
    let intro = intro.map_or_else(String::new, |intro| format!("{intro}\n\n"));
    let (head, rule) = (head.join(" | "), "|---".repeat(N));
    format!("## {title}\n\n{intro}| {head} |\n{rule}|\n{rows}\n")
}

/// Escapes a cell for a Markdown table.
fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace(['\n', '\r'], " ")
}
