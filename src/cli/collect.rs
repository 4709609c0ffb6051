//! `topicmill collect`: stores posts for the pipeline's topics from a source.

use clap::Args;
use serde_json::json;

use super::app::{App, PipelineFlags, RunFlags};
use super::source::{self, SourceFlag};
use super::time_range::parse_range;
use super::{CliError, Exit, OutputFormat, collect_summary, output};
use crate::collect::{MAX_LISTED, ReadOptions, TimeRange};
use crate::pipeline::Context;
use crate::pipeline_file::Pipeline;
use crate::telemetry::Progress;
use topicmill_core::{Listing, Outcome, RunStatus, SourceKind, ThingKind, Topic, TopicReport};
use topicmill_sources::Source;
use topicmill_sources::page::PAGE_LIMIT;
use topicmill_sources::source::Paging;
use topicmill_store::Access;

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  topicmill collect
  topicmill collect --since 2026-11-20 --until 2026-11-21
  topicmill collect --topic climate --listing new --limit 50")]
pub struct Collect {
    #[command(flatten)]
    pub pipeline: PipelineFlags,
    #[command(flatten)]
    pub flags: CollectFlags,
    #[command(flatten)]
    record: RunFlags,
}

/// Flags that select the source, the topics and the posts to collect.
#[derive(Debug, Clone, Args)]
pub struct CollectFlags {
    #[command(flatten)]
    pub source: SourceFlag,
    /// Read only the topic with the slug TOPIC; repeatable
    #[arg(long = "topic", value_name = "TOPIC")]
    pub topics: Vec<String>,
    /// Read posts in this order: hot, new, top or rising
    ///
    /// arctic-shift supports only new [default: the pipeline's, else collect.listing: hot the first time, then new].
    #[arg(long, value_name = "LISTING")]
    pub listing: Option<Listing>,
    /// Read at most N posts per topic [default: the pipeline's, else collect.limit]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub limit: Option<u32>,
    /// Read all posts since TIME
    ///
    /// TIME is a day (UTC) like 2026-11-20, a time like 2026-11-20T08:00:00+01:00, or an age like 36h, 1d or 2w. Reddit
    /// lists only the latest 1,000 posts or so of a subreddit; missing posts are recorded as a gap.
    #[arg(long, value_name = "TIME", conflicts_with = "limit")]
    pub since: Option<String>,
    /// Read posts up to TIME; a day is included in full [default: now]
    #[arg(long, value_name = "TIME", requires = "since")]
    pub until: Option<String>,
    /// Print how many requests each topic may take, and send none
    #[arg(long, conflicts_with = "run_json")]
    pub dry_run: bool,
    /// Set the output format of --dry-run
    #[arg(
        hide_short_help = true,
        long,
        value_enum,
        default_value_t,
        requires = "dry_run"
    )]
    pub format: OutputFormat,
}

impl Collect {
    pub async fn run(self, app: &App) -> Result<Exit, CliError> {
        let pipeline = app.pipeline(&self.pipeline)?;
        let collector = Collector::open(app, &pipeline, &self.flags).await?;
        if self.flags.dry_run {
            return collector.print_requests(app, self.flags.format).await;
        }
        let collect = async |context: &Context| collector.run(app, context).await;
        self.record.record(app, Access::Create, collect).await
    }
}

/// An opened source, and the topics to read from it.
pub struct Collector {
    source: Box<dyn Source>,
    topics: Vec<Topic>,
    time_range: Option<TimeRange>,
}

impl Collector {
    /// Checks the flags and opens the source. No request is sent yet.
    pub async fn open(
        app: &App,
        pipeline: &Pipeline,
        flags: &CollectFlags,
    ) -> Result<Self, CliError> {
        let kind = flags.source.choose_and_log(app);
        let mut pipeline = pipeline.clone();
        pipeline.keep_topics(&flags.topics)?;
        let skipped = pipeline.skip_unread(!flags.topics.is_empty())?;
        if !skipped.is_empty() {
            let topics = skipped.join(", ");
            tracing::info!(topics, "topics without subreddits are not collected");
        }
        let listing = flags.listing;
        for topic in &mut pipeline.topics {
            // A listing set by the flag is used in every run.
            topic.is_default_listing &= listing.is_none();
            topic.listing = listing.unwrap_or(topic.listing);
            topic.limit = flags.limit.unwrap_or(topic.limit);
        }
        let time_range = parse_range(
            flags.since.as_deref(),
            flags.until.as_deref(),
            app.clock.now(),
        )?;
        check_time_range(kind, listing, time_range)?;
        let source = source::open(app, kind).await?;
        let set = app.settings().collect.listing.is_some();
        let chosen = |topic: &&Topic| set || !topic.is_default_listing;
        let chosen = pipeline.topics.iter().filter(chosen);
        check_order(kind, listing, time_range, chosen.map(|topic| topic.listing))?;
        let topics = pipeline.reads(app.settings().collect.comments_limit);
        Ok(Self {
            source,
            topics,
            time_range,
        })
    }

    /// Prints the number of requests that a run may take for each topic.
    pub async fn print_requests(&self, app: &App, format: OutputFormat) -> Result<Exit, CliError> {
        // Without a database, nothing has been read yet.
        let store = app.store(Access::ReadOnly).await.ok();
        let (kind, settings) = (self.source.kind(), app.settings());
        let (mut rows, mut total) = (Vec::new(), 0);
        for topic in &self.topics {
            let of_topic =
                |other: &&Topic| other.slug == topic.slug && other.kind == ThingKind::Post;
            let (mut stored, mut known) = (0, None);
            if let Some(store) = &store {
                let posts = store.posts();
                let threads = posts.unread_threads(kind, &topic.slug, topic.limit);
                stored = threads.await?.len() as u64;
                let path = topic.path(&topic.subreddits[0]);
                known = posts.watermark(kind, &topic.slug, &path).await?;
            }
            let is_open = known.is_some() || self.time_range.is_some();
            let (reads, most) = if topic.of_posts {
                let new = self.topics.iter().filter(of_topic);
                let new: u64 = new.map(|topic| u64::from(topic.limit)).sum();
                ("comments of posts", Some(stored + new))
            } else {
                let most = match self.source.paging() {
                    _ if !topic.keywords.is_empty() => Some(settings.collect.page_cap),
                    _ if !is_open => Some(topic.limit.div_ceil(PAGE_LIMIT)),
                    Paging::Listing(_) => Some(MAX_LISTED.div_ceil(PAGE_LIMIT)),
                    Paging::Archive(_) => None,
                };
                let reads = match topic.kind {
                    ThingKind::Post => "posts",
                    ThingKind::Comment => "comments",
                };
                (reads, most.map(u64::from))
            };
            total += most.unwrap_or(1);
            rows.push(json!({"topic": topic.slug, "reads": reads, "at_most": most}));
        }
        let table = output::table_from_objects("topic, reads, at_most", &rows);
        output::print_table(&table, format)?;
        let per_minute = match kind {
            SourceKind::ArcticShift => settings.arctic_shift.requests_per_minute,
            _ => settings.reddit.requests_per_minute,
        };
        tracing::info!(
            requests = total,
            minutes = total.div_ceil(u64::from(per_minute.max(1))),
            "the most that a run may take at {per_minute} requests per minute; a topic without `at_most` takes a \
             request for each 100 posts or comments since its last run"
        );
        Ok(Exit::Done)
    }

    /// Collects posts with a progress bar, logs a summary, and returns the exit code.
    pub async fn run(&self, app: &App, context: &Context) -> Result<Exit, CliError> {
        let topics = &self.topics;
        let bar = Progress::bar("collect", "topics", topics.len() as u64);
        let store_author = app.settings().collect.store_author;
        let options = ReadOptions {
            time_range: self.time_range,
            ..app.read_options(self.source.kind())
        };
        let collected = context
            .collect(&*self.source, topics, options, store_author, &|n| {
                bar.add(n);
            })
            .await;
        drop(bar);
        let (reports, status) = collected?;
        let summary = collect_summary::line(&reports, &self.source.traffic());
        context.log_summary(|| tracing::info!("{summary}"));
        Ok(exit(&reports, status))
    }
}

/// Returns an error if `--listing` names an order that the source does not support. If the order was chosen in the
/// pipeline file or the settings, only logs that the newest posts are read instead.
fn check_order(
    kind: SourceKind,
    listing: Option<Listing>,
    time_range: Option<TimeRange>,
    mut chosen: impl Iterator<Item = Listing>,
) -> Result<(), CliError> {
    let (title, only) = (kind.traits().title, kind.listing(Listing::New));
    let can = |listing| kind.listing(listing) == listing;
    match listing {
        Some(listing) if !can(listing) => Err(CliError::Usage(format!(
            "{title} can only be read in chronological order: leave out `--listing {listing}`, or use `--listing \
             {only}`"
        ))),
        None if time_range.is_none() && !chosen.all(can) => {
            tracing::info!(
                "{title} can only be read in chronological order: reading the newest posts"
            );
            Ok(())
        }
        _ => Ok(()),
    }
}

/// Returns an error if the source or `--listing` does not allow a time range.
fn check_time_range(
    kind: SourceKind,
    listing: Option<Listing>,
    time_range: Option<TimeRange>,
) -> Result<(), CliError> {
    let about = kind.traits();
    if time_range.is_some() && !about.listings.contains(&Listing::New) {
        return Err(CliError::Usage(format!(
            "{} cannot be read by time: leave out --since, or choose a different --source",
            about.title
        )));
    }
    match listing {
        Some(listing) if time_range.is_some() && listing != Listing::New => Err(CliError::Usage(
            format!("--since reads new posts: leave out `--listing {listing}`"),
        )),
        _ => Ok(()),
    }
}

/// Returns the exit code: `Policy` if Reddit rejected the credentials or blocked the client, `TryAgain` if the quota
/// was exhausted for every topic, and `Partial` for any other failure.
fn exit(reports: &[TopicReport], status: RunStatus) -> Exit {
    let mut outcomes = reports.iter().map(|report| report.outcome);
    let is_limited = |outcome| outcome == Outcome::RateLimited;
    let all_limited = !reports.is_empty() && outcomes.clone().all(is_limited);
    match status {
        RunStatus::Done => Exit::Done,
        _ if outcomes.any(Outcome::is_refusal) => Exit::Policy,
        _ if all_limited => Exit::TryAgain,
        _ => Exit::Partial,
    }
}
