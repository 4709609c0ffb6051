//! `topicmill report`: writes a report with charts as one HTML page, and the charts as files, each atomically.

use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

use clap::Args;
use clap::builder::PossibleValuesParser;
use serde_json::json;

use super::labels::LabelsFlags;
use super::time_range::parse_times;
use super::{App, CliError, Exit, Kind, OutputFormat, output};
use crate::atomic_file::{self, IfExists};
use topicmill_core::redact_url;
use topicmill_pages::report::{self, Chart, GENERATOR, Report as Numbers, ReportOptions};
use topicmill_store::{Access, Grouping};

/// Number of bytes at the start of a file that are searched for the report marker, which precedes the style sheet.
const HEAD: u64 = 1_024;

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  topicmill report report.html
  topicmill report week.html --since 7d --svg charts
  topicmill report comments.html --kind comments")]
pub struct Report {
    /// Write the page to OUT, replacing an existing report
    #[arg(value_name = "OUT", default_value = "report.html")]
    out: PathBuf,
    /// Report on posts or on comments
    #[arg(help_heading = "Filters", long, value_enum, default_value_t)]
    kind: Kind,
    /// Show only posts created at or after TIME
    ///
    /// TIME is a day (UTC) like 2026-11-20, a time like 2026-11-20T08:00:00+01:00, or an age like 36h, 1d or 2w. The
    /// report also compares these posts with the previous period of the same length.
    #[arg(help_heading = "Filters", long, value_name = "TIME")]
    since: Option<String>,
    /// Show only posts created before TIME; a day is included in full
    #[arg(help_heading = "Filters", long, value_name = "TIME")]
    until: Option<String>,
    /// Also show the shares of labels in each group of posts
    ///
    /// Groups with 30 random answers have estimated shares, the others assigned ones.
    #[arg(long, value_name = "COLUMN", value_parser = PossibleValuesParser::new(Grouping::NAMES))]
    by: Option<String>,
    /// Also write each chart as an SVG file to DIR
    #[arg(long, value_name = "DIR")]
    svg: Option<PathBuf>,
    /// Also replace a page that is not a report
    #[arg(long)]
    overwrite: bool,
    /// Print a summary of the report as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    labels: LabelsFlags,
}

impl Report {
    pub async fn run(self, app: &App) -> Result<Exit, CliError> {
        let now = app.clock.now();
        let [since, until] = parse_times(self.since.as_deref(), self.until.as_deref(), now)?;
        if since.is_some_and(|since| since >= now.into()) {
            let usage = "--since is not in the past, so no post can match";
            return Err(CliError::Usage(usage.to_owned()));
        }
        app.check_not_database(&self.out)?;
        let store = app.store(Access::ReadOnly).await?;
        let options = ReportOptions {
            kind: self.kind.thing_kind(),
            subject: self.labels.selected(app, &store).await?,
            since,
            until,
            database: database_name(app.settings().database.url.reveal()),
            now: now.into(),
            by: self.by.as_deref().and_then(Grouping::named),
        };
        let numbers = report::gather(&store, &options).await?;
        store.close().await?;
        if app.stop.is_cancelled() {
            return Ok(Exit::Done);
        }
        let page = report::render_page(&numbers);
        write_page(&self.out, &page, self.overwrite)?;
        let charts = match &self.svg {
            Some(folder) => write_charts(folder, &report::charts(&numbers))?,
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
            let mut value = report::summary(numbers);
            value["path"] = json!(self.out);
            value["bytes"] = json!(bytes);
            value["charts"] = json!(charts);
            output::print_json(&value, OutputFormat::Json)?;
        } else {
            let count = |kind| (self.kind == kind).then_some(numbers.posts);
            tracing::info!(
                posts = count(Kind::Posts),
                comments = count(Kind::Comments),
                bytes,
                "wrote the report to `{}`: {}",
                self.out.display(),
                report::headline(numbers)
            );
        }
        Ok(Exit::Done)
    }
}

/// Returns the name of a database for a page that may be shared: without its path, host or password.
pub fn database_name(url: &str) -> String {
    let redacted = redact_url(url);
    let path = redacted.split(['?', '#']).next().unwrap_or_default();
    match path.rsplit(['/', '\\', ':']).next() {
        None | Some("") => "a database".to_owned(),
        Some(name) => name.to_owned(),
    }
}

/// Returns true if a file is a report written by this program.
fn is_report(path: &Path) -> bool {
    let mut head = Vec::new();
    let mut read_head = || File::open(path)?.take(HEAD).read_to_end(&mut head);
    // Reading a pipe would wait for its writer.
    path.is_file()
        && read_head().is_ok()
        && head
            .windows(GENERATOR.len())
            .any(|part| part == GENERATOR.as_bytes())
}

/// Writes a page atomically. Replaces an earlier report, and any other file if `overwrite` is true.
pub fn write_page(path: &Path, page: &str, overwrite: bool) -> Result<(), CliError> {
    if path.symlink_metadata().is_ok() && !overwrite && !is_report(path) {
        return Err(CliError::Usage(format!(
            "`{}` exists and is not a report: choose a different file, or replace it with --overwrite",
            path.display()
        )));
    }
    atomic_file::write(path, page, IfExists::Replace).map_err(CliError::writing(path))
}

/// Writes each chart to its own file in a folder, which is created if necessary. Replaces earlier charts, but no other
/// file. Returns their paths.
fn write_charts(folder: &Path, charts: &[Chart]) -> Result<Vec<PathBuf>, CliError> {
    fs::create_dir_all(folder).map_err(CliError::writing(folder))?;
    let mut written = Vec::new();
    for chart in charts {
        let path = folder.join(format!("{}.svg", chart.id));
        if path.symlink_metadata().is_ok() && !is_report(&path) {
            return Err(CliError::Usage(format!(
                "`{}` exists and is not a chart of a report: choose a different folder, or move the file",
                path.display()
            )));
        }
        write_page(&path, &chart.file(), true)?;
        written.push(path);
    }
    Ok(written)
}
