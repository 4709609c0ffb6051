//! `topicmill purge`: deletes posts that were deleted on Reddit or that the user names, and old post text.

use std::io;
use std::path::{Path, PathBuf};

use clap::{ArgGroup, Args};

use super::app::{App, RunFlags};
use super::source::{self, SourceFlag};
use super::{CliError, Exit};
use crate::pipeline::Context;
use crate::purge::{Check, PurgePlan, Retention};
use crate::telemetry::{Progress, nonzero};
use topicmill_core::record::PurgeCounts;
use topicmill_core::{
    Fullname, PurgeReason, RunStatus, SourceKind, ThingKind, UnknownVariant, author_name,
};
use topicmill_store::{Access, Store};
use topicmill_tables::bytes;

/// The four kinds of purge, which can be combined.
const USAGE: &str = "\
topicmill purge --check-deleted [OPTIONS]
       topicmill purge --ids <FILE> [OPTIONS]
       topicmill purge --author <NAME>... [OPTIONS]
       topicmill purge --retention [<HOURS>] [OPTIONS]";

const AFTER_HELP: &str = "Examples:
  topicmill purge --check-deleted --max-requests 600 --older-than-hours 24
  topicmill purge --ids erase.txt
  topicmill purge --author u/someone

A purged post leaves only a tombstone: its id, and the time and reason of the purge. topicmill deletes its text, url, \
author and flair, and everything derived from them: labels, scores, sightings (the days on which runs saw the post), and \
logits and vectors that no other labelled post with the same text needs. It also deletes crossposts of the post, \
because they show its text. No file and no listing restores a purged post, with one exception: a post that moderators \
removed, or that Reddit did not return, is stored again when Reddit itself shows it again. A post is \
never stored again if its author deleted it, if --author purged it, or if --ids names it without another reason.

After a purge, topicmill rewrites a SQLite file, because its free space may contain copies of old rows. This needs \
disk space for two more copies of the file, and blocks other writers until it is done; --no-rewrite postpones it. A \
PostgreSQL server keeps the bytes of deleted rows until `topicmill db vacuum`, which locks each table while it is \
rewritten. You must purge the server's write-ahead log, backups and replicas yourself.

--retention deletes title, body, url, permalink and author of posts, and keeps labels, scores and answers. A post's age \
is the time since it was first stored, by the server's clock with PostgreSQL, and by this machine's clock with SQLite. \
This machine's clock is rejected if it is more than a day behind the last run or 30 days ahead of it, unless you add \
--yes. A post that was stored at a time in the future counts as old. Collecting the post again does not restore its \
text, and a post without a label will not get one.";

#[derive(Debug, Args)]
#[expect(clippy::option_option, reason = "a value may be left out")]
#[command(after_help = AFTER_HELP, override_usage = USAGE)]
#[command(group(
    ArgGroup::new("what").required(true).multiple(true).args(["check_deleted", "ids", "author", "retention"])
))]
pub struct Purge {
    /// Purge stored posts that were deleted or removed on Reddit
    ///
    /// reddit needs a key. arctic-shift needs none, but reports only deletions within about 36 hours of posting.
    #[arg(help_heading = "What to purge", long)]
    check_deleted: bool,
    /// Send at most N requests
    ///
    /// The next run continues with the posts that were checked longest ago.
    #[arg(long, value_name = "N", requires = "check_deleted", value_parser = clap::value_parser!(u64).range(1..))]
    max_requests: Option<u64>,
    /// Skip posts that were checked with SOURCE within the last HOURS
    #[arg(
        long,
        value_name = "HOURS",
        requires = "check_deleted",
        default_value_t = 0
    )]
    older_than_hours: u32,
    /// Purge the posts listed in FILE
    ///
    /// Each line contains the id of a post, a fullname (`t3_…`, `t1_…`) or a URL, optionally followed by a comma and a
    /// reason. A first line such as `fullname`, `id` or `url` is a header.
    #[arg(help_heading = "What to purge", long, value_name = "FILE")]
    ids: Option<PathBuf>,
    /// Purge the stored posts by the author NAME; can be repeated
    ///
    /// Spell NAME with or without `u/`, in upper or lower case. Posts that are stored without an author are not found.
    #[arg(help_heading = "What to purge", long, value_name = "NAME", value_parser = parse_author)]
    author: Vec<String>,
    /// Delete post text stored longer than HOURS [default: `retention.hours`]
    ///
    /// Labels, scores and answers are kept. Posts that only files and dumps contained are exempt, unless
    /// `retention.imports` is set.
    #[arg(
        help_heading = "What to purge",
        long,
        value_name = "HOURS",
        num_args = 0..=1,
        value_parser = clap::value_parser!(u32).range(1..)
    )]
    retention: Option<Option<u32>>,
    /// Don't rewrite the SQLite file now
    ///
    /// A later purge or `db vacuum` then removes the remaining bytes.
    #[arg(long)]
    no_rewrite: bool,
    #[command(flatten)]
    source: SourceFlag,
    /// Trust this machine's clock even if the last run was more than 30 days ago
    #[arg(long)]
    yes: bool,
    #[command(flatten)]
    record: RunFlags,
}

impl Purge {
    pub async fn run(self, app: &App) -> Result<Exit, CliError> {
        let ids = self.ids.as_deref().map(read_ids).transpose()?;
        let retention = self.retention.map(|hours| retention_of(app, hours));
        if retention.is_some_and(|chosen| chosen.hours == 0) {
            let why = "retention.hours is 0, which keeps post text forever: set it, or use `--retention HOURS`";
            return Err(CliError::Usage(why.to_owned()));
        }
        let ids = ids.unwrap_or_default();
        let plan = PurgePlan {
            ids: ids
                .iter()
                .map(|listed| (listed.fullname.clone(), listed.reason))
                .collect(),
            authors: self.author,
            retention,
            check: self.check_deleted.then_some(Check {
                max_requests: self.max_requests,
                older_than_hours: self.older_than_hours,
            }),
            leave_file: self.no_rewrite,
            trusts_clock: self.yes,
        };
        let source = match plan.check {
            None => None,
            Some(_) => Some(source::open(app, self.source.choose_and_log(app)).await?),
        };
        let purge = async |context: &Context| {
            check_bare(&context.store, &ids).await?;
            let bar = Progress::counter("purge", "posts");
            let on_checked = |posts| bar.add(posts);
            let purged = context.purge(&plan, source.as_deref(), &on_checked).await;
            drop(bar);
            let (report, status) = purged?;
            let by_archive = source.is_some_and(|source| source.kind() == SourceKind::ArcticShift);
            context.log_summary(|| {
                log_result(&report);
                if by_archive {
                    tracing::warn!(
                        "Arctic Shift does not see deletions later than about 36 hours after posting: to delete such \
                         posts too, use `purge --retention`, or `--check-deleted` with a Reddit key"
                    );
                }
            });
            Ok(Exit::done_if(status == RunStatus::Done))
        };
        self.record.record(app, Access::Existing, purge).await
    }
}

/// Returns the retention in the settings, with a different number of hours if given.
pub(super) fn retention_of(app: &App, hours: Option<u32>) -> Retention {
    let settings = app.settings().retention;
    Retention {
        hours: hours.unwrap_or(settings.hours),
        keep_vectors: settings.keep_vectors,
        imports: settings.imports,
    }
}

fn parse_author(name: &str) -> Result<String, &'static str> {
    match author_name(name) {
        "" => Err("it is empty: write a name such as `u/someone`"),
        name => Ok(name.to_owned()),
    }
}

pub(super) fn log_result(report: &PurgeCounts) {
    tracing::info!(
        purged = report.purged,
        checked = nonzero(report.checked),
        deleted = nonzero(report.deleted),
        removed = nonzero(report.removed),
        missing = nonzero(report.missing),
        requested = nonzero(report.requested),
        crossposts = nonzero(report.crossposts),
        gold = nonzero(report.gold),
        texts = nonzero(report.texts),
        unclear = nonzero(report.unclear),
        requests = nonzero(report.requests),
        left = nonzero(report.left),
        "purging done"
    );
    if report.texts_unlabelled > 0 {
        tracing::warn!(
            texts = report.texts_unlabelled,
            "posts lost their text before they had a label of the current label set: run `classify` before retention, \
             or set `retention.hours` higher"
        );
    }
}

/// Column names that mark a header line. Most of them would also be valid ids.
const HEADINGS: &str = "fullname id ids post posts post_id name url link permalink";

/// A line of a file of ids.
pub(super) struct ListedId {
    pub fullname: Fullname,
    reason: PurgeReason,
    /// True for an id without its prefix, which is taken as a post's.
    is_bare: bool,
}

/// Checks that no bare id is the id of a stored comment, which would stay in the database.
async fn check_bare(store: &Store, ids: &[ListedId]) -> Result<(), CliError> {
    let bare = ids.iter().filter(|listed| listed.is_bare);
    let comment = |listed: &ListedId| Fullname::of(ThingKind::Comment, listed.fullname.id()).ok();
    let comments: Vec<Fullname> = bare.filter_map(comment).collect();
    match store.posts().text_hashes(&comments).await?.first() {
        None => Ok(()),
        Some((comment, _)) => Err(CliError::Usage(format!(
            "`{id}` is the id of a stored comment: write `{comment}` to purge the comment, or `t3_{id}` to purge a post",
            id = comment.id()
        ))),
    }
}

/// Reads a file of post ids with their purge reasons, or stdin for `-`. One bad line rejects the whole file, because a
/// typo must not leave a post in the database that was meant to be purged.
pub(super) fn read_ids(path: &Path) -> Result<Vec<ListedId>, CliError> {
    let shown = path.display();
    let text = bytes::open(path).and_then(bytes::decode);
    let text = text
        .and_then(io::read_to_string)
        .map_err(|error| CliError::Usage(format!("cannot read the ids in `{shown}`: {error}")))?;
    let mut posts = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let (id, reason) = line.split_once([',', ';', '\t']).unwrap_or((line, ""));
        let [id, reason] = [id, reason].map(|word| word.trim().trim_matches('"'));
        let mut headings = HEADINGS.split(' ');
        let is_header =
            reason == "reason" || headings.any(|heading| heading.eq_ignore_ascii_case(id));
        if id.is_empty() || number == 1 && is_header {
            continue;
        }
        let failed = |error: &dyn std::fmt::Display| {
            CliError::Usage(format!(
                "cannot read the ids in `{shown}`: line {number}: {error}"
            ))
        };
        let is_bare = !id.contains(['_', '/']);
        let fullname = Fullname::from_url(id).map_err(|error| failed(&error))?;
        let reason = match reason {
            "" => PurgeReason::Requested,
            word => word
                .parse()
                .map_err(|error: UnknownVariant| failed(&error))?,
        };
        posts.push(ListedId {
            fullname,
            reason,
            is_bare,
        });
    }
    Ok(posts)
}
