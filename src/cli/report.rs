//! `topicmill report`: a picture of what is stored.

use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::json;

use super::labels::selected_labels;
use super::time_range::parse_times;
use super::{CliError, Exit, OutputFormat, Setup, output};
use topicmill_core::redact_url;
use topicmill_pages::report::{self, Report as Numbers, ReportOptions};
use topicmill_store::Access;

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  topicmill report report.html
  topicmill report week.html --since 7d --svg charts")]
pub struct Report {
    /// Write the page to this file; a report that is there already is replaced
    #[arg(value_name = "OUT")]
    out: PathBuf,
    /// Show only posts that were posted at this time or later, and compare them with as much time before it: a day (UTC)
    /// like 2026-11-20, a time with its zone like 2026-11-20T08:00:00+01:00, or how long ago like 36h, 1d or 2w
    #[arg(long, value_name = "TIME")]
    since: Option<String>,
    /// Show only posts that were posted before this time; a day counts to its end
    #[arg(long, value_name = "TIME")]
    until: Option<String>,
    /// Show the labels of this label set instead of the current one: its name or version, or a pipeline file
    #[arg(long, value_name = "NAME")]
    label_set: Option<String>,
    /// Show the labels of this model, by its name or the beginning of its hash [default: the only model that gave labels
    /// under the label set, else the current one]
    #[arg(long, value_name = "MODEL", requires = "label_set")]
    model: Option<String>,
    /// Write each chart to an SVG file of its own in this folder, too
    #[arg(long, value_name = "DIR")]
    svg: Option<PathBuf>,
    /// Replace files that are no reports, too
    #[arg(long)]
    overwrite: bool,
    /// Print what was written as JSON
    #[arg(long)]
    json: bool,
}

impl Report {
    pub async fn run(self, setup: &Setup) -> Result<Exit, CliError> {
        let now = setup.clock.now();
        let [since, until] = parse_times(self.since.as_deref(), self.until.as_deref(), now)?;
        if since.is_some_and(|since| since >= until.unwrap_or(now.into())) {
            let usage =
                "--since is not before --until, or not in the past: no post lies between them";
            return Err(CliError::Usage(usage.to_owned()));
        }
        setup.check_not_database(&self.out)?;
        let store = setup.store(Access::ReadOnly).await?;
        let options = ReportOptions {
            subject: selected_labels(
                setup,
                &store,
                self.label_set.as_deref(),
                self.model.as_deref(),
            )
            .await?,
            since,
            until,
            database: database_name(setup.settings().database.url.reveal()),
            now: now.into(),
        };
        let numbers = report::gather(&store, &options).await?;
        store.close().await?;
        if setup.stop.is_cancelled() {
            return Ok(Exit::Done);
        }
        let page = report::render_page(&numbers);
        crate::report_files::place_page(&self.out, &page, self.overwrite)?;
        let charts = match &self.svg {
            Some(folder) => {
                let charts = report::charts(&numbers);
                crate::report_files::place_charts(folder, &charts, self.overwrite)?
            }
            None => Vec::new(),
        };
        self.print_result(&numbers, page.len(), &charts)
    }

    fn print_result(
        &self,
        numbers: &Numbers,
        bytes: usize,
        charts: &[PathBuf],
    ) -> Result<Exit, CliError> {
        if self.json {
            let value = json!({
                "path": self.out, "bytes": bytes, "charts": charts,
                "finding": report::headline(numbers), "posts": numbers.posts, "labelled": numbers.scored(),
            });
            output::print_json(&value, OutputFormat::Json)?;
        } else {
            let path = Path::new(&self.out).display();
            tracing::info!(
                posts = numbers.posts,
                bytes,
                "the report is in `{path}`: {}",
                report::headline(numbers)
            );
        }
        Ok(Exit::Done)
    }
}

/// What a database is called in a page that is handed on: no path of this machine, no host, no password.
pub fn database_name(url: &str) -> String {
    let url = redact_url(url);
    let url = url.split(['?', '#']).next().unwrap_or_default();
    let name = url.rsplit(['/', '\\', ':']).next().unwrap_or_default();
    if name.is_empty() {
        "a database".to_owned()
    } else {
        name.to_owned()
    }
}
