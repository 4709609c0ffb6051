//! The screen of `status`: 24 lines of 80 columns, the answer to each question on its line.

use crate::cli::{output, screen};
use crate::domain::{RunStatus, Timestamp};
use crate::outlook::{FailedTopic, Outlook, ago};
use crate::store::{LastRun, StageRuns};
use crate::telemetry::harmless;

/// The widest of the words that a line begins with, and two spaces.
const INDENT: usize = 13;
/// Lines of one answer: what has more to say is read with `--format json`.
const MOST_LINES: usize = 2;
/// Longer lines are hard to read.
const WIDEST: usize = 100;

/// The screen.
pub fn of(outlook: &Outlook, url: &str) -> String {
    let terminal = screen::width();
    let width = terminal.unwrap_or(screen::USUAL).min(WIDEST);
    let lines = Lines {
        width,
        is_terminal: terminal.is_some(),
    };
    let now = outlook
        .now
        .as_datetime()
        .format("%Y-%m-%d %H:%M UTC")
        .to_string();
    let room = width.saturating_sub(now.len() + 3);
    let url = lines.cut(&harmless::line(url), room);
    let gap = " ".repeat(room.saturating_sub(screen::columns(&url)) + 1);
    let mut text = format!(" {url}{gap}{now}\n\n");
    let answers = [
        ("Running", Some(running(outlook))),
        ("Posts", Some(posts(outlook))),
        ("Labelled", labelled(outlook)),
        ("Waiting", waiting(outlook)),
        ("Set aside", set_aside(outlook)),
        ("Labels", labels(outlook)),
        ("Beside", beside(outlook)),
        ("Deletions", deletions(outlook)),
        ("Failing", failing(&outlook.failed_topics)),
        ("Schedules", schedules(outlook)),
        ("Gaps", gaps(outlook)),
    ];
    for (name, answer) in answers {
        if let Some(answer) = answer {
            text.push_str(&lines.answer(name, &answer));
        }
    }
    text.push('\n');
    text.push_str(&lines.stages(outlook));
    let next = outlook.next();
    let next = match next.command {
        Some(command) => format!("`{command}`: {}", next.why),
        None => next.why,
    };
    text.push_str(&lines.answer("Next", &next));
    text
}

struct Lines {
    width: usize,
    is_terminal: bool,
}

impl Lines {
    fn cut(&self, text: &str, room: usize) -> String {
        if self.is_terminal {
            screen::cut(text, room).into_owned()
        } else {
            text.to_owned()
        }
    }

    /// A word, and what there is to say, at most so many lines of it on a terminal.
    fn answer(&self, name: &str, text: &str) -> String {
        let room = self.width.saturating_sub(INDENT + 1).max(16);
        let text = harmless::line(text);
        let mut lines: Vec<String> = vec![String::new()];
        for word in text.split_whitespace() {
            let line = lines.last_mut().expect("it begins with one");
            let beyond = screen::columns(line) + 1 + screen::columns(word) > room;
            if line.is_empty() {
                line.push_str(word);
            } else if !beyond {
                line.push(' ');
                line.push_str(word);
            } else {
                lines.push(word.to_owned());
            }
        }
        if self.is_terminal && lines.len() > MOST_LINES {
            let rest = lines.split_off(MOST_LINES - 1).join(" ");
            lines.push(rest);
        }
        let lines = lines.iter().enumerate().map(|(i, line)| {
            let name = if i == 0 { name } else { "" };
            let line = self.cut(line, room);
            format!("{}\n", format!(" {name:INDENT$}{line}").trim_end())
        });
        lines.collect()
    }

    /// A line of the table of stages; a narrow terminal has room for its first columns.
    fn row(&self, stage: &str, cells: &[String; 5]) -> String {
        const WIDTHS: [usize; 5] = [14, 13, 8, 12, 12];
        let (mut line, mut wide) = (format!(" {stage:INDENT$}"), 1 + INDENT);
        for (cell, room) in cells.iter().zip(WIDTHS) {
            wide += room;
            if wide <= self.width {
                line.extend([format!("{cell:>room$}")]);
            }
        }
        format!("{}\n", line.trim_end())
    }

    /// What each stage did in the last day, and why its last run failed.
    fn stages(&self, outlook: &Outlook) -> String {
        if outlook.stages.is_empty() && outlook.last_day.is_empty() {
            return String::new();
        }
        let columns = ["last good run", "runs in 24 h", "failed", "posts", "new"];
        let mut text = self.row("Stage", &columns.map(str::to_owned));
        let mut stages: Vec<&LastRun> = outlook.stages.iter().collect();
        stages.sort_by(|a, b| a.stage.cmp(&b.stage));
        for last in stages {
            let good = last.good_at.map_or_else(
                || "never".to_owned(),
                |at| format!("{} ago", ago(outlook.since(at))),
            );
            let day = outlook.last_day.iter().find(|day| day.stage == last.stage);
            let of = |figure: fn(&StageRuns) -> i64| number(day.map_or(0, figure));
            let new = day.filter(|day| day.new > 0).map(|day| number(day.new));
            let cells = [
                good,
                of(|day| day.runs),
                of(|day| day.failed),
                of(|day| day.posts),
            ];
            let [good, runs, failed, posts] = cells;
            let new = new.unwrap_or_default();
            text.push_str(&self.row(&last.stage, &[good, runs, failed, posts, new]));
        }
        for last in &outlook.stages {
            if [RunStatus::Failed.as_str(), RunStatus::Died.as_str()]
                .contains(&last.status.as_str())
            {
                let error = last.error.as_deref().unwrap_or("no reason is recorded");
                let ended = ago(outlook.since(last.finished_at));
                let told = format!("{} {} ago (run {}): {error}", last.stage, ended, last.id);
                text.push_str(&self.answer(
                    if last.status == "died" {
                        "Died"
                    } else {
                        "Failed"
                    },
                    &told,
                ));
            }
        }
        text.push('\n');
        text
    }
}

fn running(outlook: &Outlook) -> String {
    let told = outlook.running.iter().map(|run| {
        let host = run.worker.split(':').next().unwrap_or_default();
        let pid = run.worker.rsplit(':').next().unwrap_or_default();
        let began = ago(outlook.since(run.started_at));
        let seen = ago(outlook.since(run.seen_at));
        format!(
            "{} for {began} (run {}, process {pid} on {host}, seen {seen} ago)",
            run.stage, run.id
        )
    });
    let told: Vec<String> = told.collect();
    match told.as_slice() {
        [] => "nothing".to_owned(),
        told => told.join("; "),
    }
}

fn posts(outlook: &Outlook) -> String {
    let posts = outlook.backlog.posts;
    let Some(stored) = outlook.newest.collected_at else {
        return number(posts);
    };
    let about = about(outlook);
    let mut text = format!(
        "{about}{}; the last new one came {} ago",
        number(posts),
        ago(outlook.since(stored))
    );
    if let Some(posted) = outlook.newest.created_at {
        let old = ago(outlook.since(posted));
        text.extend([format!("; the newest is {old} old")]);
    }
    text
}

fn labelled(outlook: &Outlook) -> Option<String> {
    let standing = &outlook.backlog;
    standing.model.as_ref()?;
    let share = share(standing.labelled, standing.posts);
    let almost = if outlook.is_estimate && share == "all" {
        "almost "
    } else {
        ""
    };
    let mut text = format!(
        "{}{} ({almost}{share})",
        about(outlook),
        number(standing.labelled)
    );
    if standing.none_of_these > 0 {
        text.extend([format!(
            "; {} are other, {} unsure",
            self::share(standing.other, standing.labelled),
            self::share(standing.unsure, standing.labelled)
        )]);
    }
    if standing.text_purged > 0 {
        text.extend([format!(
            "; {} lost their texts before",
            number(standing.text_purged)
        )]);
    }
    Some(text)
}

fn waiting(outlook: &Outlook) -> Option<String> {
    let standing = &outlook.backlog;
    if standing.posts == 0 {
        return None;
    }
    if standing.unlabelled == 0 {
        return Some(format!(
            "{}none",
            if outlook.is_estimate { "almost " } else { "" }
        ));
    }
    let mut text = format!("{}{}", about(outlook), number(standing.unlabelled));
    if let Some(oldest) = standing.oldest_unlabelled {
        text.extend([format!(", the oldest for {}", ago(outlook.since(oldest)))]);
    }
    if standing.claimed > 0 {
        text.extend([format!("; {} held by workers", number(standing.claimed))]);
    }
    if let (Some(left), Some(pace)) = (outlook.seconds_left, outlook.posts_per_sec) {
        let left = i64::try_from(left)
            .ok()
            .and_then(chrono::TimeDelta::try_seconds)?;
        let digits = usize::from(pace < 10.0);
        text.extend([format!("; about {} at {pace:.digits$}/s", ago(left))]);
    }
    Some(text)
}

fn set_aside(outlook: &Outlook) -> Option<String> {
    let posts = outlook.backlog.set_aside;
    if posts == 0 {
        return None;
    }
    let reasons: Vec<String> = outlook
        .failures
        .iter()
        .map(|failure| format!("{} × {}", failure.posts, failure.error))
        .collect();
    Some(format!(
        "{} after failing; `{} --select failed` tries again: {}",
        number(posts),
        outlook.classify(),
        reasons.join("; ")
    ))
}

fn schedules(outlook: &Outlook) -> Option<String> {
    let told = outlook.failed_slots.iter().map(|slot| {
        let due = outlook.since(slot.due_at);
        format!("{} failed {} ago", slot.schedule, ago(due))
    });
    let told: Vec<String> = told.collect();
    (!told.is_empty()).then(|| format!("{}; `topicmill schedule list` says why", told.join("; ")))
}

fn labels(outlook: &Outlook) -> Option<String> {
    let standing = &outlook.backlog;
    let (set, model) = (standing.label_set.as_ref()?, standing.model.as_ref()?);
    let version = standing.label_set_hash.as_deref().map_or("", short);
    Some(format!("{set}, version {version}, by {model}"))
}

fn beside(outlook: &Outlook) -> Option<String> {
    let told = outlook.beside.iter().map(|other| {
        format!(
            "{} posts wait for {} {} by {}",
            number(other.posts),
            other.label_set,
            short(&other.label_set_hash),
            other.model
        )
    });
    let told: Vec<String> = told.collect();
    (!told.is_empty()).then(|| told.join("; "))
}

fn deletions(outlook: &Outlook) -> Option<String> {
    let standing = &outlook.backlog;
    if standing.posts == 0 {
        return None;
    }
    let asked = match standing.reconciled_at {
        Some(at) => format!("compared with Reddit as of {}", day(at)),
        None => "never compared with Reddit".to_owned(),
    };
    let unchecked = match standing.unchecked {
        0 => String::new(),
        posts => format!("; {}{} have no check yet", about(outlook), number(posts)),
    };
    Some(format!("{asked}{unchecked}"))
}

fn failing(topics: &[FailedTopic]) -> Option<String> {
    let (first, more) = topics.split_first()?;
    let runs = if first.runs == 1 {
        "1 run".to_owned()
    } else {
        format!("{} runs", first.runs)
    };
    let mut text = format!(
        "{} (r/{}: {}) since {}, {runs}",
        first.topic,
        first.subreddit,
        first.outcome,
        first.since.as_datetime().format("%m-%d %H:%M")
    );
    if !more.is_empty() {
        let names: Vec<&str> = more.iter().map(|topic| topic.topic.as_str()).collect();
        text.extend([format!("; also {}", names.join(", "))]);
    }
    Some(text)
}

fn gaps(outlook: &Outlook) -> Option<String> {
    let gap = outlook.gaps.first()?;
    let (from, until) = (gap.from_at.as_datetime(), gap.until_at.as_datetime());
    let until = if from.date_naive() == until.date_naive() {
        until.format("%H:%M").to_string()
    } else {
        until.format("%m-%d %H:%M").to_string()
    };
    Some(format!(
        "{}; the latest: r/{}, {} to {until}",
        number(i64::try_from(outlook.gaps.len()).unwrap_or(i64::MAX)),
        gap.subreddit,
        day(gap.from_at)
    ))
}

fn about(outlook: &Outlook) -> &'static str {
    if outlook.is_estimate { "about " } else { "" }
}

fn day(time: Timestamp) -> String {
    time.as_datetime().format("%Y-%m-%d %H:%M").to_string()
}

/// As much of a hash as `labels list` shows.
pub fn short(hash: &str) -> &str {
    hash.get(..12).unwrap_or(hash)
}

/// `1,480`
fn number(n: i64) -> String {
    output::thousands(n.unsigned_abs())
}

/// Whole percents; less than one, and nearly all, are told as such.
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
        for (part, all, told) in [
            (0, 0, "none"),
            (0, 9, "none"),
            (9, 9, "all"),
            (1, 1_000, "under 1 %"),
            (999, 1_000, "over 99 %"),
            (1, 2, "50 %"),
            (2, 3, "67 %"),
        ] {
            assert_eq!(share(part, all), told);
        }
    }
}
