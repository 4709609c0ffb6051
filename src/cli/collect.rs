//! `topicmill collect`: stores posts for the pipeline's topics from a source.

mod requests;

use clap::Args;

use super::app::{App, PipelineFlags, RunFlags};
use super::output::DryRunFormat;
use super::source::{self, SourceFlag};
use super::time_range::parse_range;
use super::{CliError, Exit, collect_summary};
use crate::collect::{ReadOptions, TimeRange};
use crate::pipeline::Context;
use crate::pipeline_file::Pipeline;
use crate::telemetry::Progress;
use topicmill_core::{Listing, Outcome, RunStatus, SourceKind, Topic, TopicReport};
use topicmill_sources::Source;
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
#[derive(Debug, Clone, Default, Args)]
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
    #[command(flatten)]
    pub output: DryRunFormat,
}

impl Collect {
    pub async fn run(self, app: &App) -> Result<Exit, CliError> {
        let pipeline = app.pipeline(&self.pipeline)?;
        let collector = Collector::open(app, &pipeline, &self.flags).await?;
        if self.flags.dry_run {
            return collector
                .print_requests(app, self.flags.output.format)
                .await;
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
        let is_set = app.settings().collect.listing.is_some();
        let topics = pipeline.topics.iter();
        let chosen = topics.filter(|topic| is_set || !topic.is_default_listing);
        check_listing(kind, listing, time_range, chosen.map(|topic| topic.listing))?;
        let source = source::open(app, kind).await?;
        let topics = pipeline.reads(app.settings().collect.comments_limit);
        Ok(Self {
            source,
            topics,
            time_range,
        })
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

/// Returns an error if the source does not support `--listing` or the time range, or if these contradict each other. If
/// the order was chosen in the pipeline file or the settings, only logs that the newest posts are read instead.
fn check_listing(
    kind: SourceKind,
    listing: Option<Listing>,
    time_range: Option<TimeRange>,
    mut chosen: impl Iterator<Item = Listing>,
) -> Result<(), CliError> {
    let (title, only) = (kind.traits().title, kind.listing(Listing::New));
    let is_supported = |listing| kind.listing(listing) == listing;
    if time_range.is_some() && !kind.traits().listings.contains(&Listing::New) {
        return Err(CliError::Usage(format!(
            "{title} cannot be read by time: leave out --since, or choose a different --source"
        )));
    }
    match listing {
        Some(listing) if time_range.is_some() && listing != Listing::New => Err(CliError::Usage(
            format!("--since reads new posts: leave out `--listing {listing}`"),
        )),
        Some(listing) if !is_supported(listing) => Err(CliError::Usage(format!(
            "{title} can only be read in chronological order: leave out `--listing {listing}`, or use `--listing \
             {only}`"
        ))),
        None if time_range.is_none() && !chosen.all(is_supported) => {
            tracing::info!(
                "{title} can only be read in chronological order: reading the newest posts"
            );
            Ok(())
        }
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
