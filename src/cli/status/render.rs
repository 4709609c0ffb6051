//! Renders the `status` text: headings with a few lines each, for a terminal of 24 lines and 80 columns.

use chrono::TimeDelta;
use comfy_table::{CellAlignment, ColumnConstraint, ContentArrangement, Table, Width, presets};

use crate::cli::{output, terminal};
use crate::status::{FailedTopic, OUTDATED, StatusReport};
use crate::telemetry::sanitize;
use topicmill_core::{RunStatus, Timestamp, format_duration, short_hash};
use topicmill_review::REVIEW_COMMAND;
use topicmill_store::{LastRun, StageRuns, host_of};

/// The width of the first column: the longest heading and a gap.
const FIRST_COLUMN: u16 = 13;
/// The number of labels whose estimated shares are shown.
const SHARES: usize = 3;
/// The maximum line width, for readability.
const WIDEST: usize = 100;

pub fn render(status: &StatusReport, url: &str) -> String {
    let optional_rows = [
        ("Database", Some(url.to_owned())),
        ("Time", Some(day(status.now) + " UTC")),
        ("Running", Some(running(status))),
        ("Posts", Some(posts(status))),
        ("Archive", archive(status)),
        ("Labelled", labelled(status)),
        ("Waiting", waiting(status)),
        ("Parked", parked(status)),
        ("Labels", labels(status)),
        ("Quality", quality(status)),
        ("Shares", shares(status)),
        ("Deletions", deletions(status)),
        ("Failing", failing(&status.failed_topics)),
        ("Schedules", schedules(status)),
        ("Gaps", gaps(status)),
    ];
    let rows = optional_rows.into_iter();
    let above = rows.filter_map(|(name, line)| Some([name.to_owned(), line?]));
    let next = status.next();
    let advice = match next.command {
        Some(command) => format!("`{command}`: {}", next.why),
        None => next.why,
    };
    let errors = status.stages.iter().filter_map(|last| error(status, last));
    let below = errors.chain([["Next".to_owned(), advice]]);
    let mut stages = layout(stages(status));
    for column in stages.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    let tables = [layout(above.collect()), stages, layout(below.collect())];
    tables.map(|table| lines(&table)).join("\n")
}

/// Creates a table without borders that wraps text to the width of the terminal.
fn layout<const N: usize>(rows: Vec<[String; N]>) -> Table {
    let width = terminal::width().unwrap_or(terminal::DEFAULT_WIDTH);
    let mut table = Table::new();
    table
        .load_preset(presets::NOTHING)
        .set_content_arrangement(ContentArrangement::Dynamic)
        .set_width(u16::try_from(width.min(WIDEST)).unwrap_or(u16::MAX));
    for row in rows {
        table.add_row(row.map(|cell| sanitize::line(&cell).into_owned()));
    }
    if let Some(first) = table.column_mut(0) {
        first.set_constraint(ColumnConstraint::Absolute(Width::Fixed(FIRST_COLUMN)));
    }
    table
}

/// Renders a table without the padding at the end of lines.
fn lines(table: &Table) -> String {
    let lines = table.lines().map(|line| format!("{}\n", line.trim_end()));
    lines.collect()
}

/// Returns the last good run of each stage and its runs in the last day, below the names of the columns.
fn stages(status: &StatusReport) -> Vec<[String; 6]> {
    let columns = [
        "Stage",
        "last good run",
        "runs in 24 h",
        "failed",
        "posts",
        "new",
    ];
    let mut rows = vec![columns.map(str::to_owned)];
    let mut stages: Vec<&LastRun> = status.stages.iter().collect();
    stages.sort_by_key(|last| last.stage.as_str());
    for last in stages {
        let ago = |at| format!("{} ago", format_duration(status.since(at)));
        let good = last.good_at.map(ago);
        let day = status.last_day.iter().find(|day| day.stage == last.stage);
        let sum = |figure: fn(&StageRuns) -> i64| number(day.map_or(0, figure));
        rows.push([
            last.stage.to_string(),
            good.unwrap_or_else(|| "never".to_owned()),
            sum(|day| day.runs),
            sum(|day| day.failed),
            sum(|day| day.posts),
            sum(|day| day.new),
        ]);
    }
    rows
}

/// Returns the error of a stage's last run, if it has one, or failed or crashed.
fn error(status: &StatusReport, last: &LastRun) -> Option<[String; 2]> {
    let name = match last.status {
        RunStatus::Crashed => "Crashed",
        RunStatus::Failed => "Failed",
        RunStatus::Partial if last.error.is_some() || last.problem().is_some() => "Unfinished",
        _ => return None,
    };
    let error = last.error.as_deref().unwrap_or("no error is recorded");
    let ended = format_duration(status.since(last.finished_at));
    let text = format!("{} {ended} ago (run {}): {error}", last.stage, last.id);
    Some([name.to_owned(), text])
}

/// Joins descriptions on one line; `None` if there are none.
fn join_all<T>(all: &[T], described: impl Fn(&T) -> String) -> Option<String> {
    let descriptions: Vec<String> = all.iter().map(described).collect();
    Some(descriptions.join("; ")).filter(|text| !text.is_empty())
}

fn running(status: &StatusReport) -> String {
    let runs = join_all(&status.running, |run| {
        let host = host_of(&run.worker);
        let pid = run.worker.rsplit(':').next().unwrap_or_default();
        let [began, seen] =
            [run.started_at, run.seen_at].map(|at| format_duration(status.since(at)));
        let (stage, id) = (&run.stage, run.id.0);
        format!("{stage} for {began} (run {id}, process {pid} on {host}, seen {seen} ago)")
    });
    runs.unwrap_or_else(|| "nothing".to_owned())
}

fn posts(status: &StatusReport) -> String {
    let posts = about(status, status.backlog.posts);
    let mut parts = vec![match status.backlog.comments {
        0 => posts,
        comments => format!("{posts}, {} of them comments", number(comments)),
    }];
    if let Some(collected_at) = status.newest.collected_at {
        let stored = format_duration(status.since(collected_at));
        parts.push(format!("the last new one was stored {stored} ago"));
        if let Some(created_at) = status.newest.created_at {
            let age = format_duration(status.since(created_at));
            parts.push(format!("the newest is {age} old"));
        }
    }
    parts.join("; ")
}

fn archive(status: &StatusReport) -> Option<String> {
    let archive = status.archive?;
    let behind = archive.measured_at.as_datetime() - archive.newest_at.as_datetime();
    Some(format!(
        "Arctic Shift was {} behind when it was last read, {} ago",
        format_duration(behind.max(TimeDelta::zero())),
        format_duration(status.since(archive.measured_at))
    ))
}

fn labelled(status: &StatusReport) -> Option<String> {
    let backlog = &status.backlog;
    backlog.model.as_ref()?;
    let mut part = share(backlog.labelled, backlog.posts);
    if status.is_estimate && part == "all" {
        part.insert_str(0, "almost ");
    }
    let labelled = about(status, backlog.labelled);
    let mut parts = vec![format!("{labelled} ({part})")];
    if backlog.none_of_these > 0 {
        let other = share(backlog.other, backlog.labelled);
        let unsure = share(backlog.unsure, backlog.labelled);
        parts.push(format!("{other} are other, {unsure} are unsure"));
    }
    if backlog.without_text > 0 {
        let lost = number(backlog.without_text);
        parts.push(format!("{lost} have no text"));
    }
    Some(parts.join("; "))
}

fn waiting(status: &StatusReport) -> Option<String> {
    let backlog = &status.backlog;
    if backlog.posts == 0 {
        return None;
    }
    if backlog.unlabelled == 0 {
        let almost = if status.is_estimate { "almost " } else { "" };
        return Some(format!("{almost}none"));
    }
    let posts = about(status, backlog.unlabelled);
    let mut parts = vec![match backlog.oldest_unlabelled {
        None => posts,
        Some(oldest) => {
            let age = format_duration(status.since(oldest));
            format!("{posts}, the oldest for {age}")
        }
    }];
    if backlog.claimed > 0 {
        parts.push(format!("{} claimed by workers", number(backlog.claimed)));
    }
    if let (Some(left), Some(pace)) = (status.seconds_left, status.posts_per_sec)
        && let Some(left) = i64::try_from(left).ok().and_then(TimeDelta::try_seconds)
    {
        let (left, digits) = (format_duration(left), usize::from(pace < 10.0));
        parts.push(format!("about {left} at {pace:.digits$}/s"));
    }
    Some(parts.join("; "))
}

fn parked(status: &StatusReport) -> Option<String> {
    let reasons = join_all(&status.failures, |failure| {
        format!("{} × {}", failure.posts, failure.error)
    });
    (status.backlog.parked > 0).then(|| {
        format!(
            "{} after repeated failures: {}",
            number(status.backlog.parked),
            reasons.unwrap_or_default()
        )
    })
}

fn schedules(status: &StatusReport) -> Option<String> {
    let failures = join_all(&status.failed_scheduled_runs, |run| {
        let ago = format_duration(status.since(run.due_at));
        format!("{} failed {ago} ago", run.schedule)
    });
    let failed =
        failures.map(|failures| format!("{failures}; `topicmill schedule list` shows the errors"));
    let overdue = status.overdue_schedules.first().map(ToString::to_string);
    let outdated = status.is_scheduler_outdated.then(|| OUTDATED.to_owned());
    let parts: Vec<String> = outdated.into_iter().chain(overdue).chain(failed).collect();
    Some(parts.join("; ")).filter(|text| !text.is_empty())
}

fn labels(status: &StatusReport) -> Option<String> {
    let backlog = &status.backlog;
    let (set, model) = (backlog.label_set.as_ref()?, backlog.model.as_ref()?);
    let version = backlog.label_set_hash.as_deref().map_or("", short_hash);
    Some(format!("{set}, version {version}, by {model}"))
}

fn quality(status: &StatusReport) -> Option<String> {
    let quality = status.quality.as_ref()?;
    let advice = if quality.is_estimate() {
        String::new()
    } else {
        format!(" (`{REVIEW_COMMAND}`, then /review)")
    };
    Some(format!("{}{advice}", quality.sentence))
}

fn shares(status: &StatusReport) -> Option<String> {
    status.quality.as_ref()?.shares_in_words(SHARES)
}

fn deletions(status: &StatusReport) -> Option<String> {
    let backlog = &status.backlog;
    if backlog.posts == 0 {
        return None;
    }
    let sources = [
        ("Reddit", backlog.reconciled_at),
        ("Arctic Shift", status.archive_reconciled_at),
    ];
    let compared = |(source, at): (&str, Option<Timestamp>)| {
        Some(format!("compared with {source} as of {}", day(at?)))
    };
    let mut parts: Vec<String> = sources.into_iter().filter_map(compared).collect();
    if parts.is_empty() {
        parts.push("never compared".to_owned());
    }
    if backlog.unchecked > 0 {
        let unchecked = about(status, backlog.unchecked);
        parts.push(format!("{unchecked} older than 36 hours not checked yet"));
    }
    Some(parts.join("; "))
}

fn failing(topics: &[FailedTopic]) -> Option<String> {
    let (first, more) = topics.split_first()?;
    let names: Vec<&str> = more.iter().map(|topic| topic.topic.as_str()).collect();
    let also = if names.is_empty() {
        String::new()
    } else {
        format!("; also {}", names.join(", "))
    };
    Some(format!(
        "{} (r/{}: {}) since {}, {}{also}",
        first.topic,
        first.subreddit,
        first.outcome,
        first.since.as_datetime().format("%m-%d %H:%M"),
        output::counted(first.runs, "run")
    ))
}

fn gaps(status: &StatusReport) -> Option<String> {
    let gap = status.gaps.first()?;
    let (count, subreddit) = (status.gaps.len(), &gap.subreddit);
    let (from, until) = (day(gap.from_at), day(gap.until_at));
    let latest = format!("r/{subreddit}, {from} to {until}");
    Some(format!("{count}; the latest: {latest}"))
}

/// Formats a number of posts, which may be an estimate.
fn about(status: &StatusReport, posts: i64) -> String {
    let about = if status.is_estimate { "about " } else { "" };
    format!("{about}{}", number(posts))
}

fn day(time: Timestamp) -> String {
    time.as_datetime().format("%Y-%m-%d %H:%M").to_string()
}

/// Formats a number with separators, such as `1,480`.
fn number(n: i64) -> String {
    output::thousands(n.unsigned_abs())
}

/// Formats a share as a whole percentage, which is never rounded to none or all.
fn share(part: i64, all: i64) -> String {
    match (part, all) {
        (0, _) | (_, 0) => "none".to_owned(),
        (part, all) if part == all => "all".to_owned(),
        (part, all) => match (200 * i128::from(part) + i128::from(all)) / (2 * i128::from(all)) {
            0 => "under 1 %".to_owned(),
            100 => "over 99 %".to_owned(),
            percent => format!("{percent} %"),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_never_rounded_to_none_or_all() {
        for (part, all, described) in [
            (0, 0, "none"),
            (0, 9, "none"),
            (9, 9, "all"),
            (1, 1_000, "under 1 %"),
            (999, 1_000, "over 99 %"),
            (1, 2, "50 %"),
            (2, 3, "67 %"),
        ] {
            assert_eq!(share(part, all), described);
        }
    }
}
