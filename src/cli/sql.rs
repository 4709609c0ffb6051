//! `topicmill sql`: runs read-only queries, and describes the tables and views.

mod schema;

use std::io::{self, IsTerminal, Write};
use std::pin::pin;
use std::time::Duration;

use clap::Args;
use tokio::sync::mpsc::Receiver;

use super::{App, CliError, Exit, OutputFormat, output};
use crate::telemetry::sanitize;
use topicmill_store::analysis;
use topicmill_store::{Access, Part, QueryEnd, QueryRequest};

/// The time allowed after a signal for cancelling the query on the server.
const GRACE: Duration = Duration::from_secs(4);
/// The idle timeout of the reader, which may be a pager.
const READER_TIMEOUT: Duration = Duration::from_hours(1);
/// The time allowed after `--timeout` for writing rows that have already arrived.
const WRITE_GRACE: Duration = Duration::from_secs(1);

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  topicmill sql --named topics
  topicmill sql --schema labeled_posts
  topicmill sql \"SELECT title FROM uncertain_posts\" --limit 5 --format csv")]
pub struct Sql {
    /// Run QUERY; `-` reads it from stdin
    #[arg(
        value_name = "QUERY",
        required_unless_present_any = ["named", "list", "schema"],
        conflicts_with_all = ["named", "list", "schema"]
    )]
    query: Option<String>,
    /// Run the built-in query NAME (see --list), or a file in pipelines/analysis
    #[arg(long, value_name = "NAME", conflicts_with = "list")]
    named: Option<String>,
    /// List the named queries
    #[arg(long, conflicts_with = "schema")]
    list: bool,
    /// Describe the tables and views, or the columns of TABLE
    #[arg(long, value_name = "TABLE", num_args = 0..=1, default_missing_value = "", conflicts_with = "named")]
    schema: Option<String>,
    /// Set the output format
    ///
    /// json and ndjson keep every character; a table shows control characters as symbols.
    #[arg(long, value_enum, default_value_t)]
    format: OutputFormat,
    /// Print at most ROWS rows
    #[arg(long, value_name = "ROWS")]
    limit: Option<u64>,
    /// Cancel the query after SECONDS, also on the server, and exit with 1
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..))]
    timeout: Option<u64>,
    /// Write ' before CSV text that begins with = + - @
    ///
    /// Spreadsheets would otherwise run such text as a formula.
    #[arg(long)]
    safe_csv: bool,
    /// Allow a PostgreSQL superuser, whose queries can read the server's files
    #[arg(long)]
    allow_superuser: bool,
}

impl Sql {
    pub async fn run(self, app: &App) -> Result<Exit, CliError> {
        if self.list {
            output::print_wrapped_table(&analysis::list(), self.format)?;
            return Ok(Exit::Done);
        }
        if let Some(table) = &self.schema {
            schema::show(table, self.format)?;
            return Ok(Exit::Done);
        }
        let stopped_for_long = async {
            app.stop.cancelled().await;
            app.clock.sleep(GRACE).await;
        };
        tokio::select! {
            // A stopped query cleans up by itself.
            answered = self.run_query(app) => answered,
            () = stopped_for_long => Ok(Exit::Done),
        }
    }

    async fn run_query(&self, app: &App) -> Result<Exit, CliError> {
        let Some(sql) = self.statement(app).await? else {
            return Ok(Exit::Done);
        };
        let store = tokio::select! {
            store = app.store(Access::ReadOnly) => store?,
            () = app.stop.cancelled() => return Ok(Exit::Done),
        };
        let timeout = self.timeout.map(Duration::from_secs);
        let stop = app.stop.child_token();
        let request = QueryRequest {
            sql,
            limit: self.limit,
            timeout,
            receive_timeout: Some(READER_TIMEOUT),
            allow_superuser: self.allow_superuser || app.settings().database.allow_superuser,
            stop: stop.clone(),
        };
        let (into, parts) = topicmill_store::part_channel();
        let (format, safe_csv) = (self.format, self.safe_csv);
        // Rows are written on another thread, because a slow reader must not block signal handling.
        let writing = tokio::task::spawn_blocking(move || write(parts, format, safe_csv));
        let mut running = pin!(store.run_query(request, into));
        let (answer, is_late) = tokio::select! {
            answer = &mut running => (answer, false),
            () = app.clock.sleep(timeout.unwrap_or_default()), if timeout.is_some() => {
                // The client cancels, because the server's own `timeout` ends only queries whose clients are gone.
                stop.cancel();
                (running.await, true)
            }
        };
        let rows = tokio::select! {
            rows = writing => rows.expect("the writer does not panic")?,
            () = app.stop.cancelled() => return Ok(Exit::Done),
            // If the reader is slower than this, the remaining rows are dropped.
            () = app.clock.sleep(WRITE_GRACE), if is_late => 0,
        };
        let answer = answer?;
        if is_late {
            let secs = self.timeout.unwrap_or_default();
            let text =
                format!("the query was cancelled after {secs} s: narrow it, or raise `--timeout`");
            return Err(CliError::Message(Exit::Partial, text));
        }
        if self.format == OutputFormat::Table && answer != QueryEnd::Cancelled {
            let more = match answer {
                QueryEnd::Truncated => "; there are more",
                _ => "",
            };
            let rows = output::counted(rows, "row");
            output::print(&format!("({rows}{more})\n"))?;
        }
        Ok(Exit::Done)
    }

    /// Returns the statement to run, or `None` if a signal arrived while reading stdin.
    async fn statement(&self, app: &App) -> Result<Option<String>, CliError> {
        match (self.query.as_deref(), &self.named) {
            (Some("-"), _) => {
                // Stdin is read on another thread, so that signals are handled while it is idle.
                let read =
                    tokio::task::spawn_blocking(|| std::io::read_to_string(std::io::stdin()));
                let text = tokio::select! {
                    text = read => text.unwrap_or_else(|error| Err(error.into())),
                    () = app.stop.cancelled() => return Ok(None),
                };
                text.map(Some).map_err(|error| {
                    CliError::Usage(format!("cannot read the query from stdin: {error}"))
                })
            }
            (Some(query), _) => Ok(Some(query.to_owned())),
            (None, Some(name)) => analysis::named(name)
                .map(Some)
                .map_err(|error| CliError::Usage(error.to_string())),
            (None, None) => unreachable!("clap requires one of these, --list or --schema"),
        }
    }
}

/// Streams a result to stdout, with only one part in memory. Returns the number of rows.
fn write(mut parts: Receiver<Part>, format: OutputFormat, safe_csv: bool) -> Result<u64, CliError> {
    let Some(Part::Columns(columns)) = parts.blocking_recv() else {
        return Ok(0); // The query was rejected.
    };
    let mut count = 0;
    let rows = std::iter::from_fn(|| match parts.blocking_recv()? {
        Part::Rows(rows) => {
            count += rows.len() as u64;
            Some(rows)
        }
        Part::Columns(_) => unreachable!("the columns are sent once"),
    });
    let mut out = io::BufWriter::with_capacity(64 * 1024, io::stdout().lock());
    let is_shown = format == OutputFormat::Csv && io::stdout().is_terminal();
    let written = output::emit_rows(&columns, rows, format, safe_csv, |text| {
        let sanitized = is_shown.then(|| sanitize::lines(text));
        out.write_all(sanitized.as_deref().unwrap_or(text).as_bytes())
    });
    let written = written.and_then(|()| out.flush());
    written.map(|()| count).map_err(output::stdout_error)
}
