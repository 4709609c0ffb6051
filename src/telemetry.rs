//! Logging to stderr: log lines, and progress bars on a terminal.
//!
//! Log lines are written above the bars. Without a terminal there are no bars; stages log their [`Progress`] instead,
//! and [`log_activity`] logs that a command is still working if it logs nothing else. Control characters in fields are
//! replaced or escaped, see [`sanitize`].

mod lines;
mod progress;
mod run_id;
pub mod sanitize;

use std::io::{self, IsTerminal, Write};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use indicatif::MultiProgress;
use serde::Deserialize;
use topicmill_core::clock::SharedClock;
use tracing::{Event, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::field::MakeExt;
use tracing_subscriber::filter::EnvFilter;
use tracing_subscriber::fmt::format::{Writer, debug_fn};
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};
use tracing_subscriber::layer::{Context, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;

use self::lines::{AboveBars, JsonLine, field};
use self::progress::BARS;
pub use self::progress::Progress;
use self::run_id::end_last_run;
pub use self::run_id::{in_run, log_for_run};

/// Number of log lines so far.
static LINES: AtomicU64 = AtomicU64::new(0);

/// True while a command is waiting for the answer to a prompt.
pub static IS_PROMPTING: AtomicBool = AtomicBool::new(false);

/// Time without log lines until a command logs that it is still working. Doubled each time, up to [`LONGEST_QUIET`].
const QUIET: Duration = Duration::from_secs(10);
/// The longest of these times.
const LONGEST_QUIET: Duration = Duration::from_mins(5);

/// The format of log lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// Human-readable text.
    Text,
    /// One JSON object per line.
    Json,
}

/// Starts logging on stderr; call it once. `verbosity` 0 shows warnings and the summary lines of stages; higher values
/// show more, negative ones only errors. `TOPICMILL_LOG` overrides it, in the syntax of `RUST_LOG`.
pub fn init(format: LogFormat, verbosity: i8) {
    let default = match verbosity {
        i8::MIN..=-1 => "error",
        0 => "warn,topicmill=info",
        1 => "warn,topicmill=debug",
        _ => "info,topicmill=trace",
    };
    // ONNX Runtime warns about every graph. The pool and the TLS library log errors that the caller reports as well.
    let default = format!(
        "{default},ort=error,sqlx_core::pool::connection=error,rustls_platform_verifier=off"
    );
    // `sqlx` logs the values of unknown connection parameters and lines from the password file, which may be secrets.
    let quotes = "sqlx_postgres::options=off".parse();
    let filter = EnvFilter::try_from_env("TOPICMILL_LOG")
        .unwrap_or_else(|_| EnvFilter::new(default))
        .add_directive(quotes.expect("the directive is well formed"));
    let registry = tracing_subscriber::registry().with(filter).with(CountLines);
    // By default, a layer would report errors of stderr to stderr and panic.
    let layer = tracing_subscriber::fmt::layer()
        .log_internal_errors(false)
        .with_target(false);
    let text_fields = debug_fn(field).delimited(" ");
    match format {
        LogFormat::Json => {
            let lines = layer.json().flatten_event(true);
            registry.with(lines.with_writer(|| JsonLine)).init();
        }
        LogFormat::Text if io::stderr().is_terminal() => {
            BARS.get_or_init(MultiProgress::new);
            // People at a terminal know the time; log collectors and files need it.
            let lines = layer.without_time().fmt_fields(text_fields);
            registry.with(lines.with_writer(|| AboveBars)).init();
        }
        LogFormat::Text => {
            let lines = layer.with_ansi(false).fmt_fields(text_fields);
            registry.with(lines.with_writer(io::stderr)).init();
        }
    }
}

/// Counts log lines.
struct CountLines;

impl<S: Subscriber> Layer<S> for CountLines {
    fn on_event(&self, _: &Event<'_>, _: Context<'_, S>) {
        LINES.fetch_add(1, Ordering::Relaxed);
    }
}

/// Logs that the command is still working whenever it has logged nothing for a while and shows no progress bar.
pub async fn log_activity(clock: SharedClock) {
    let mut quiet = QUIET;
    let mut lines = LINES.load(Ordering::Relaxed);
    loop {
        clock.sleep(quiet).await;
        let latest = progress::latest();
        if lines != LINES.load(Ordering::Relaxed)
            || BARS.get().is_some() && latest.is_some()
            || IS_PROMPTING.load(Ordering::Relaxed)
        {
            quiet = QUIET;
        } else {
            tracing::info!(
                secs = clock.elapsed().as_secs(),
                of = latest.as_ref().map(|latest| latest.name),
                done = latest.as_ref().map(|latest| latest.count.position()),
                unit = latest.as_ref().map(|latest| latest.unit),
                "still working"
            );
            quiet = LONGEST_QUIET.min(2 * quiet);
        }
        lines = LINES.load(Ordering::Relaxed);
    }
}

/// Writes the fatal error as the last line of a JSON log, regardless of the filter.
pub fn fatal(message: &str, causes: &[String]) {
    let mut timestamp = String::new();
    // A line without a timestamp is better than none.
    let _ = SystemTime.format_time(&mut Writer::new(&mut timestamp));
    let mut line =
        serde_json::json!({"timestamp": timestamp, "level": "ERROR", "message": message});
    if !causes.is_empty() {
        line["causes"] = causes.into();
    }
    // An error of stderr cannot be reported.
    let _ = JsonLine.write_all(format!("{line}\n").as_bytes());
    end_last_run();
}

/// Returns a count for a log line, which leaves out zeros.
pub fn nonzero(count: u64) -> Option<u64> {
    (count > 0).then_some(count)
}

/// Rounds to one decimal, for log lines.
pub fn tenths(number: f64) -> f64 {
    (number * 10.0).round() / 10.0
}
