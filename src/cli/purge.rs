//! `topicmill purge`

use std::path::{Path, PathBuf};

use clap::{ArgGroup, Args};

use super::setup::{RunFlags, Setup, word};
use super::{CliError, Exit};
use crate::domain::{Fullname, RunStatus, SourceKind};
use crate::purge::{Check, Plan, Step};
use crate::source::open::sample;
use crate::store::Access;
use crate::telemetry::Progress;

/// What `purge --help` adds.
const RULES: &str = "\
Only a purged post's id, time and reason are kept: its text, url, author and flair are deleted, and so is \
all that was made of them (labels, scores, sightings, and logits that no other post's text shares), and so are \
crossposts, which show its text. Neither a file nor a listing brings it back, with one exception: what moderators \
removed, or Reddit did not know, is stored again when Reddit itself shows it again. What its author deleted, or \
--ids named, stays away for good.

Then a SQLite file is rewritten, because free space in it may hold copies of old rows. It takes room for two more \
copies of the file, and writers wait meanwhile; --no-rewrite puts it off. A PostgreSQL server keeps the bytes of \
deleted rows until `topicmill db vacuum`, which locks each table while it rewrites it; its write-ahead log, backups \
and replicas are yours to purge.

--retention takes title, body, url, permalink, author and flair of posts, and leaves labels and scores. Age counts \
from when a post was first stored. The text does not come back when the post is collected again, and a post \
without a label gets none any more.";

/// Flags of `purge`.
#[derive(Debug, Args)]
#[command(after_help = RULES)]
#[command(group(ArgGroup::new("what").required(true).multiple(true).args(["check_deleted", "ids", "retention"])))]
pub struct Purge {
    /// Ask Reddit about stored posts, 100 at a time, and purge what is deleted or removed there
    #[arg(long)]
    check_deleted: bool,
    /// At most this many questions to Reddit; the next run goes on with what was not asked for longest
    #[arg(long, value_name = "N", requires = "check_deleted", value_parser = clap::value_parser!(u64).range(1..))]
    max_requests: Option<u64>,
    /// Leave alone what Reddit showed within the last H hours
    #[arg(
        long,
        value_name = "H",
        requires = "check_deleted",
        default_value_t = 0
    )]
    older_than_hours: u32,
    /// Purge the posts that a file names, one id or fullname (`t3_…`) a line
    #[arg(long, value_name = "FILE")]
    ids: Option<PathBuf>,
    /// Delete texts stored longer than this, or than `collect.retention_hours`; labels and scores stay
    #[arg(long, value_name = "HOURS", num_args = 0..=1, value_parser = clap::value_parser!(u32).range(1..))]
    #[expect(
        clippy::option_option,
        reason = "how clap has a flag whose value may be left out"
    )]
    retention: Option<Option<u32>>,
    /// Leave a SQLite file as it is: a later purge, or `db vacuum`, takes the last bytes out of it
    #[arg(long)]
    no_rewrite: bool,
    /// Whom to ask: reddit, or sample: the sample Reddit, about posts that came from there
    #[arg(long, value_name = "SOURCE", default_value = "reddit")]
    source: String,
    #[command(flatten)]
    record: RunFlags,
}

impl Purge {
    pub async fn run(self, setup: &Setup) -> Result<Exit, CliError> {
        let ids = self.ids.as_deref().map(read_ids).transpose()?;
        let retention_hours = self
            .retention
            .map(|hours| hours.map_or_else(|| setting(setup), Ok))
            .transpose()?;
        let plan = Plan {
            ids: ids.unwrap_or_default(),
            retention_hours,
            check: self.check_deleted.then_some(Check {
                max_requests: self.max_requests,
                older_than_hours: self.older_than_hours,
            }),
            leave_file: self.no_rewrite,
        };
        let source = word::<SourceKind>("--source", &self.source)?;
        let (reddit, _sample) = match (plan.check, source) {
            (None, _) => (None, None),
            (Some(_), SourceKind::Reddit) => (Some(setup.reddit()?), None),
            (Some(_), SourceKind::Sample) => {
                let (reddit, sample) = sample(setup.reddit_settings(), setup.clock.clone()).await?;
                (Some(reddit), Some(sample))
            }
            (Some(_), other) => {
                return Err(CliError::Usage(format!(
                    "`{other}` cannot be asked about posts: --source is reddit or sample"
                )));
            }
        };
        self.record.check()?;
        let context = setup.context(setup.store(Access::Existing).await?);
        let bar = Progress::counter("purge", "posts");
        let heard = |step| match step {
            Step::Asked(n) => bar.add(n),
            Step::Rewriting { done, total } => bar.note(&rewriting(done, total)),
        };
        let purged = context.purge(&plan, reddit.as_ref(), &heard).await;
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
            unclear = some(report.unclear),
            requests = some(report.requests),
            left = some(report.left),
            "purging done"
        );
        Ok(if status == RunStatus::Done {
            Exit::Done
        } else {
            Exit::Partial
        })
    }
}

/// How far a rewrite is.
pub fn rewriting(done: u64, total: u64) -> String {
    const MB: u64 = 1_000_000;
    format!(
        "rewriting the database: {} of {} MB",
        done / MB,
        total.div_ceil(MB)
    )
}

/// What `--retention` means without a number.
fn setting(setup: &Setup) -> Result<u32, CliError> {
    let hours = setup.settings().collect.retention_hours;
    if hours == 0 {
        return Err(CliError::Usage(
            "collect.retention_hours is 0, which keeps texts for ever: set it, or say `--retention HOURS`"
                .into(),
        ));
    }
    Ok(hours)
}

/// The posts that a file names. One bad line refuses the file: a typing mistake must not leave a post in the
/// database that somebody wants out.
fn read_ids(path: &Path) -> Result<Vec<Fullname>, CliError> {
    let shown = path.display();
    let text = std::fs::read_to_string(path)
        .map_err(|error| CliError::Usage(format!("read the ids of `{shown}`: {error}")))?;
    let lines = (1..).zip(text.trim_start_matches('\u{feff}').lines());
    let lines = lines.filter(|(_, line)| !line.trim().is_empty());
    lines
        .map(|(number, line)| {
            line.trim().parse().map_err(|error| {
                CliError::Usage(format!("read the ids of `{shown}`: line {number}: {error}"))
            })
        })
        .collect()
}
