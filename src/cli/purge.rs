//! `topicmill purge`

use std::path::{Path, PathBuf};

use clap::{ArgGroup, Args};

use super::setup::{RunFlags, Setup, parse_word};
use super::{CliError, Exit};
use crate::purge::{Check, PurgePlan, PurgeStep};
use crate::telemetry::Progress;
use topicmill_core::{Fullname, PurgeReason, RunStatus, SourceKind, UnknownVariant};
use topicmill_store::Access;

/// The four ways to purge; one call may combine them.
const USAGE: &str = "\
topicmill purge --check-deleted [OPTIONS]
       topicmill purge --ids <FILE> [OPTIONS]
       topicmill purge --retention [<HOURS>] [OPTIONS]
       topicmill purge --thin [<DAYS>] [OPTIONS]";

const AFTER_HELP: &str = "Examples:
  topicmill purge --check-deleted --max-requests 600 --older-than-hours 24
  topicmill purge --ids erase.txt

Only a purged post's id, time and reason are kept. topicmill deletes its text, url, author and flair, and everything \
made from them: labels, scores, the records of when a run saw it, and logits and vectors that no other labelled post \
with the same text needs. It also deletes crossposts of the post, because they show its text. No file and no listing brings the \
post back, with one exception: if moderators removed it, or Reddit did not have it, topicmill stores it again when \
Reddit itself shows it again. A post that its author deleted, or that --ids named without another reason, stays away for good.

Then topicmill rewrites a SQLite file, because free space in it may hold copies of old rows. This needs disk space for \
two more copies of the file, and other writers wait meanwhile; --no-rewrite postpones it. A PostgreSQL server keeps the \
bytes of deleted rows until `topicmill db vacuum`, which locks each table while it rewrites it. You must purge the \
server's write-ahead log, backups and replicas yourself.

--retention deletes title, body, url, permalink, author and flair of posts, and leaves labels and scores. A post's age \
counts from when it was first stored, by the server's clock with PostgreSQL; with SQLite, this machine's clock must not be \
far from the last run. A time in the future counts as old. The text does not come back when the post is collected again, and a post without \
a label does not get one any more.

--thin shortens what topicmill records about its own runs. Of what is older than DAYS days, it leaves the last sighting of \
each post, topic and day, and sums up the runs of each day in the table run_days. Posts, labels and views stay as they are. The space \
is used again; a file gets smaller with `topicmill db vacuum`.";

#[derive(Debug, Args)]
#[expect(clippy::option_option, reason = "a value may be left out")]
#[command(after_help = AFTER_HELP, override_usage = USAGE)]
#[command(group(ArgGroup::new("what").required(true).multiple(true).args(["check_deleted", "ids", "retention", "thin"])))]
pub struct Purge {
    /// Ask Reddit about stored posts, 100 at a time, and purge those deleted or removed there; this needs a key
    #[arg(long)]
    check_deleted: bool,
    /// Send at most this many requests; the next run continues with the posts whose last check is oldest
    #[arg(long, value_name = "N", requires = "check_deleted", value_parser = clap::value_parser!(u64).range(1..))]
    max_requests: Option<u64>,
    /// Skip posts that Reddit showed within the last HOURS
    #[arg(
        long,
        value_name = "HOURS",
        requires = "check_deleted",
        default_value_t = 0
    )]
    older_than_hours: u32,
    /// Purge the posts that this file names, with one id, fullname (`t3_…`) or address of a post on each line, and a comma
    /// and a reason behind it if you like; a first line such as `fullname`, `id` or `url` is a heading
    #[arg(long, value_name = "FILE")]
    ids: Option<PathBuf>,
    /// Delete texts stored longer than HOURS, or than `collect.retention_hours`; labels and scores stay
    #[arg(long, value_name = "HOURS", num_args = 0..=1, value_parser = clap::value_parser!(u32).range(1..))]
    retention: Option<Option<u32>>,
    /// Thin sightings and runs from before DAYS days ago, or `collect.thin_after_days`; posts and labels stay
    #[arg(long, value_name = "DAYS", num_args = 0..=1, value_parser = clap::value_parser!(u32).range(1..))]
    thin: Option<Option<u32>>,
    /// Do not rewrite a SQLite file now; a later purge, or `db vacuum`, removes the last bytes
    #[arg(long)]
    no_rewrite: bool,
    /// Ask this source: reddit, or sample (about posts that came from the sample Reddit)
    #[arg(long, value_name = "SOURCE", default_value = "reddit")]
    source: String,
    /// Believe this machine's clock, though the last run was more than 30 days ago
    #[arg(long)]
    yes: bool,
    #[command(flatten)]
    record: RunFlags,
}

impl Purge {
    pub async fn run(self, setup: &Setup) -> Result<Exit, CliError> {
        let ids = self.ids.as_deref().map(read_ids).transpose()?;
        let set = &setup.settings().collect;
        let retention = self
            .retention
            .map(|hours| hours.unwrap_or(set.retention_hours));
        let thin = self.thin.map(|days| days.unwrap_or(set.thin_after_days));
        for (number, why) in [
            (
                retention,
                "retention_hours is 0, which keeps texts for ever: set it, or say `--retention HOURS`",
            ),
            (
                thin,
                "thin_after_days is 0, which keeps every sighting for ever: set it, or say `--thin DAYS`",
            ),
        ] {
            if number == Some(0) {
                return Err(CliError::Usage(format!("collect.{why}")));
            }
        }
        let plan = PurgePlan {
            ids: ids.unwrap_or_default(),
            retention_hours: retention,
            thin_days: thin,
            check: self.check_deleted.then_some(Check {
                max_requests: self.max_requests,
                older_than_hours: self.older_than_hours,
            }),
            leave_file: self.no_rewrite,
            trusts_clock: self.yes,
        };
        let source = parse_word::<SourceKind>("--source", &self.source)?;
        let reddit = match plan.check {
            None => None,
            Some(_) => Some(setup.reddit_lookup(source).await?),
        };
        self.record.check(setup)?;
        let context = setup.context(setup.store(Access::Existing).await?);
        let bar = Progress::counter("purge", "posts");
        let on_step = |step| match step {
            PurgeStep::Asked(n) => bar.add(n),
            PurgeStep::Rewriting { done, total } => bar.note(&rewrite_progress(done, total)),
        };
        let purged = context.purge(&plan, reddit.as_ref(), &on_step).await;
        drop(bar);
        self.record.write(&context)?;
        context.store.close().await?;
        let (report, status) = purged?;
        let some = |n: u64| Some(n).filter(|n| *n > 0);
        tracing::info!(
            purged = report.purged,
            checked = some(report.checked),
            deleted = some(report.deleted),
            removed = some(report.removed),
            missing = some(report.missing),
            requested = some(report.requested),
            crossposts = some(report.crossposts),
            texts = some(report.texts),
            sightings = some(report.sightings),
            runs = some(report.runs),
            unclear = some(report.unclear),
            requests = some(report.requests),
            left = some(report.left),
            "purging done"
        );
        Ok(Exit::done_if(status == RunStatus::Done))
    }
}

pub fn rewrite_progress(done: u64, total: u64) -> String {
    const MB: u64 = 1_000_000;
    format!(
        "rewriting the database: {} of {} MB",
        done / MB,
        total.div_ceil(MB)
    )
}

/// Names of the column of ids in a heading. Most of them could be ids themselves.
const HEADINGS: [&str; 10] = [
    "fullname",
    "id",
    "ids",
    "post",
    "posts",
    "post_id",
    "name",
    "url",
    "link",
    "permalink",
];

/// The posts that a file names, and why each goes. One bad line refuses the file: a typing mistake must not leave a post in the
/// database that somebody wants out.
pub(super) fn read_ids(path: &Path) -> Result<Vec<(Fullname, PurgeReason)>, CliError> {
    let shown = path.display();
    let text = std::fs::read_to_string(path)
        .map_err(|error| CliError::Usage(format!("read the ids of `{shown}`: {error}")))?;
    // Some editors put a byte order mark in front, which would make the first id a wrong one.
    let lines = (1..).zip(text.trim_start_matches('\u{feff}').lines());
    let mut posts = Vec::new();
    for (number, line) in lines {
        let (id, reason) = line.split_once([',', ';', '\t']).unwrap_or((line, ""));
        let [id, reason] = [id, reason].map(|word| word.trim().trim_matches('"'));
        let is_heading = || reason == "reason" || HEADINGS.contains(&&*id.to_ascii_lowercase());
        if id.is_empty() || number == 1 && is_heading() {
            continue;
        }
        let failed = |error: &dyn std::fmt::Display| {
            CliError::Usage(format!("read the ids of `{shown}`: line {number}: {error}"))
        };
        let id = Fullname::from_url(id).map_err(|error| failed(&error))?;
        let reason = match reason {
            "" => PurgeReason::Requested,
            word => word
                .parse()
                .map_err(|error: UnknownVariant| failed(&error))?,
        };
        posts.push((id, reason));
    }
    Ok(posts)
}
