//! `topicmill demo`: runs the whole pipeline, from posts to SQL, on the sample posts and comments.

use std::path::{Path, PathBuf};

use clap::Args;

use super::app::{App, ModelFlags};
use super::collect::{CollectFlags, Collector};
use super::output::shell_word;
use super::report::{database_name, write_page};
use super::source::SourceFlag;
use super::{CliError, Exit, backlog, output};
use crate::config::Origin;
use crate::pipeline_file::CommentScope;
use topicmill_core::{Listing, SourceKind, redact_url};
use topicmill_pages::report::{self, ReportOptions};
use topicmill_store::{Access, Address, Store, Table};

/// The default database of the demo, separate from real posts.
const DEMO_DATABASE: &str = "sqlite:demo.db";

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  topicmill demo
  topicmill --database sqlite:trial.db demo")]
pub struct Demo {
    #[command(flatten)]
    model: ModelFlags,
}

impl Demo {
    pub async fn run(self, app: &App) -> Result<Exit, CliError> {
        let url = if *app.loaded.origin("database.url") == Origin::Flag {
            app.settings().database.url.reveal()
        } else {
            DEMO_DATABASE
        };
        let mut pipeline = app.load_pipeline(None)?;
        let with_comments = ["climate", "food"].map(|topic| (topic.to_owned(), CommentScope::All));
        pipeline.comments.extend(with_comments);
        let set = app.label_set(&self.model, pipeline.label_set.clone())?;
        let engines = app.engines(&self.model)?;
        let flags = CollectFlags {
            source: SourceFlag {
                source: Some(SourceKind::Sample),
            },
            // Only this listing has all posts, so that the report can compare periods.
            listing: Some(Listing::New),
            ..CollectFlags::default()
        };
        let collector = Collector::open(app, &pipeline, &flags).await?;
        let context = app.context(app.store_at(url, Access::Create).await?);

        let collected = collector.run(app, &context).await?;
        if collected != Exit::Done || app.stop.is_cancelled() {
            return Ok(collected);
        }
        let labelled = backlog::label(&context, engines, &set, &app.backlog_options()).await?;
        if app.stop.is_cancelled() {
            return Ok(labelled);
        }
        let query = "SELECT topic, posts, agreed AS \"labelled as this topic\", agreement \
                     FROM topic_agreement ORDER BY agreement DESC, topic";
        let table = context.store.query(query).await?;
        let report = write_report(app, &context.store, url).await?;
        context.store.close().await?;
        output::print(&output::aligned_table(&table))?;
        output::print(&total(&table))?;
        output::print(&next_steps(url, report.as_deref()))?;
        Ok(labelled)
    }
}

/// Formats how many posts are labelled as the topic of their subreddit, summed over all topics. In each row of the
/// table, the second column is the number of posts in a topic, and the third is the number labelled as that topic.
fn total(table: &Table) -> String {
    let [posts, agreed] = [1, 2].map(|column| {
        let numbers = table.rows.iter().filter_map(|row| row[column].as_u64());
        numbers.sum::<u64>()
    });
    let percent = (200 * agreed + posts) / (2 * posts.max(1));
    format!(
        "\n{agreed} of {posts} posts ({percent} %) are labelled as the topic of their subreddit. This is not an accuracy: \
         subreddits contain other posts too.\n"
    )
}

/// Writes the report next to the database and returns its path. If the report cannot be written, for example because a
/// different file has this name, logs a warning and returns `None`.
async fn write_report(app: &App, store: &Store, url: &str) -> Result<Option<PathBuf>, CliError> {
    let database = match Address::parse(url)? {
        Address::File(path) => path,
        Address::Server => PathBuf::new(),
    };
    let path = database.with_file_name("report.html");
    let now = app.clock.now().into();
    let options = ReportOptions::all_posts(store, &database_name(url), now).await?;
    let page = report::render_page(&report::gather(store, &options).await?);
    match write_page(&path, &page, false) {
        Ok(()) => Ok(Some(path)),
        Err(error) => {
            tracing::warn!("the report was not written: {error}");
            Ok(None)
        }
    }
}

/// Formats the location of the data and some commands to try next. They run as printed, except that a password in the
/// URL is hidden.
fn next_steps(url: &str, report: Option<&Path>) -> String {
    let name = std::env::args_os().next();
    let name = name.unwrap_or_else(|| "topicmill".into());
    let url = redact_url(url);
    let path = url.trim_start_matches("sqlite:");
    let words = [&*name.to_string_lossy(), "--database", &url].map(shell_word);
    let program = words.join(" ");
    let overview = report.map_or_else(String::new, |report| {
        format!(" Open {} in a browser for an overview.", report.display())
    });
    format!(
        "The database is {path}.{overview} Try next:\
         \n  {program} sql --named top-posts\
         \n  {program} sql 'SELECT post_title, body, outcome FROM labeled_comments LIMIT 10'\
         \n  {program} labels evaluate --gold topic\
         \n  {program} export labelled.parquet\n"
    )
}
