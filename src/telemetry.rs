//! What a person or a log collector sees on stderr: log lines, and progress bars on a terminal.
//!
//! Progress is a span with a bar (`tracing-indicatif`), so that a log line and a bar never overwrite each
//! other. Where stderr is no terminal there is no bar, and the stages log a line now and then instead. Whatever a
//! field holds, no line obeys it: see [`sanitize`].

pub mod sanitize;
mod traces;

use std::fmt;
use std::io::{self, IsTerminal, Write};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};
use tracing::Metadata;
use tracing::field::Field;
use tracing_indicatif::IndicatifLayer;
use tracing_indicatif::span_ext::IndicatifSpanExt;
use tracing_subscriber::Layer;
use tracing_subscriber::field::MakeExt;
use tracing_subscriber::filter::{EnvFilter, filter_fn};
use tracing_subscriber::fmt::format::{Writer, debug_fn};
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

/// A log line every so many, where nobody knows how many there will be; of many, fewer: some twenty lines each time that
/// there are ten times as many.
const LOG_EVERY: u64 = 5_000;

/// Whether bars are drawn: where they are not, log lines tell how far work is.
static BARS: AtomicBool = AtomicBool::new(false);

/// The run that log lines belong to; 0 before there is one.
static LAST_RUN: AtomicI64 = AtomicI64::new(0);

/// How log lines look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFormat {
    /// For people.
    Text,
    /// One JSON object a line.
    Json,
}

/// Starts logging on stderr; call it once. `verbosity` 0 shows warnings and the stages' own summary lines,
/// each more shows more; below 0 only errors. `TOPICMILL_LOG` overrides it in the syntax of `RUST_LOG`.
pub fn init(format: LogFormat, verbosity: i8) {
    let default = match verbosity {
        i8::MIN..=-1 => "error",
        0 => "warn,topicmill=info",
        1 => "warn,topicmill=debug",
        _ => "info,topicmill=trace",
    };
    // ONNX Runtime says at WARN what it does with every graph, and a pool of connections, in the words of the driver,
    // an error that whoever asked has been told already.
    let default = format!("{default},ort=error,sqlx_core::pool::connection=error");
    let filter =
        EnvFilter::try_from_env("TOPICMILL_LOG").unwrap_or_else(|_| EnvFilter::new(default));
    // It quotes the values of parameters that it does not know, and lines of the file of passwords.
    let quotes = "sqlx_postgres::options=off".parse();
    let filter = filter.add_directive(quotes.expect("the directive is well formed"));
    // What traces are made of, and no log line shows.
    let filter = if cfg!(feature = "otel") {
        let spans = format!("{}=trace", traces::TARGET).parse();
        filter.add_directive(spans.expect("the directive is well formed"))
    } else {
        filter
    };
    let is_for_people = |metadata: &Metadata<'_>| metadata.target() != traces::TARGET;
    let for_people = filter_fn(is_for_people);
    let registry = tracing_subscriber::registry()
        .with(traces::layer())
        .with(filter);
    match format {
        LogFormat::Json => {
            let lines = tracing_subscriber::fmt::layer()
                .json()
                .flatten_event(true)
                .with_target(false);
            let lines = lines.with_writer(|| JsonLine);
            registry.with(lines.with_filter(for_people)).init();
        }
        LogFormat::Text if std::io::stderr().is_terminal() => {
            BARS.store(true, Ordering::Relaxed);
            let bars = IndicatifLayer::new();
            let lines = tracing_subscriber::fmt::layer()
                .with_target(false)
                // People who look at a terminal know what time it is; collectors and files get the time.
                .without_time()
                .fmt_fields(debug_fn(field).delimited(" "))
                .with_writer(bars.get_stderr_writer());
            registry
                .with(lines.with_filter(for_people))
                .with(bars)
                .init();
        }
        LogFormat::Text => {
            let lines = tracing_subscriber::fmt::layer()
                .with_target(false)
                .with_ansi(false)
                .fmt_fields(debug_fn(field).delimited(" "));
            let lines = lines.with_writer(io::stderr);
            registry.with(lines.with_filter(for_people)).init();
        }
    }
}

/// Writes a field of a line for people, as `tracing-subscriber` does, but nothing that a terminal obeys.
fn field(out: &mut Writer<'_>, field: &Field, value: &dyn fmt::Debug) -> fmt::Result {
    let value = format!("{value:?}");
    let value = sanitize::line(&value);
    match field.name() {
        "message" => write!(out, "{value}"),
        // Where an event of the `log` crate comes from.
        name if name.starts_with("log.") => Ok(()),
        name if out.has_ansi_escapes() => {
            write!(out, "\x1b[3m{name}\x1b[0m\x1b[2m=\x1b[0m{value}")
        }
        name => write!(out, "{name}={value}"),
    }
}

tokio::task_local! {
    /// The run that the task works for.
    static TASK_RUN: i64;
}

/// Works for a run: log lines in JSON belong to it. So do those of threads and of what comes after it, until another run
/// begins in this process.
pub async fn in_run<T>(id: i64, work: impl Future<Output = T>) -> T {
    LAST_RUN.store(id, Ordering::Relaxed);
    TASK_RUN.scope(id, work).await
}

/// The run that a line belongs to which is written now; 0 before there is one.
fn current_run() -> i64 {
    TASK_RUN
        .try_with(|id| *id)
        .unwrap_or_else(|_| LAST_RUN.load(Ordering::Relaxed))
}

/// What ended the program, as the last line of a log in JSON, whatever its filter.
pub fn fatal(message: &str, causes: &[String]) {
    let mut timestamp = String::new();
    // A line without its time is better than none.
    let _ = SystemTime.format_time(&mut Writer::new(&mut timestamp));
    let mut line =
        serde_json::json!({"timestamp": timestamp, "level": "ERROR", "message": message});
    if !causes.is_empty() {
        line["causes"] = causes.into();
    }
    // There is nobody else to tell.
    let _ = JsonLine.write_all(format!("{line}\n").as_bytes());
}

/// Writes log lines in JSON to stderr, one at a time and whole: with the run they belong to, and nothing that a
/// terminal obeys.
struct JsonLine;

impl Write for JsonLine {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(line);
        let mut text = sanitize::json(&text).into_owned();
        let run = current_run();
        // Inside of a string its quotes would be escaped.
        if run != 0 && !text.contains("\"run\":") {
            // Put in as text, because the layer formats a line before anybody can add a field to it.
            text.insert_str(1, &format!("\"run\":{run},"));
        }
        io::stderr().write_all(text.as_bytes())?;
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}

/// Sends what is left of traces, where the program sends them.
pub fn finish() {
    traces::finish();
}

/// A number with one decimal, for a log line.
pub fn tenths(number: f64) -> f64 {
    (number * 10.0).round() / 10.0
}

fn style(template: &str) -> ProgressStyle {
    let style = ProgressStyle::with_template(template).expect("the template is well formed");
    style.progress_chars("━╸─").with_key("rate", rate)
}

/// The rate of a bar in three digits; its own has as many as a float.
fn rate(state: &ProgressState, out: &mut dyn std::fmt::Write) {
    // A bar has nobody to tell of an error.
    let _ = write!(out, "{:.1}/s", state.per_sec());
}

/// How far work is: a bar on a terminal, a log line at each tenth of the way without one.
#[derive(Debug)]
pub struct Progress {
    name: &'static str,
    unit: &'static str,
    /// Shows the bar, on a terminal.
    span: Option<tracing::Span>,
    /// How the bar looks.
    template: String,
    /// What goes with it now.
    note: Mutex<Option<String>>,
    /// Knows count, rate and time left, and draws nothing.
    count: ProgressBar,
    /// Whether log lines stand in for the bar.
    lines: bool,
}

impl Progress {
    /// Work on `total` things called `unit`.
    pub fn start(name: &'static str, unit: &'static str, total: u64) -> Self {
        let template = format!(
            "{name:<9} {{bar:24.cyan/dim}} {{pos:>6}}/{{len}} {unit}  {{rate:>9}}  {{eta:>4}} left"
        );
        Self::new(name, unit, &template, Some(total))
    }

    /// The same, for work that logs what it does itself: without a terminal nothing is added.
    pub fn bar(name: &'static str, unit: &'static str, total: u64) -> Self {
        Self {
            lines: false,
            ..Self::start(name, unit, total)
        }
    }

    /// Work on that many bytes.
    pub fn bytes(name: &'static str, total: u64) -> Self {
        let template = format!(
            "{name:<9} {{bar:24.cyan/dim}} {{binary_bytes:>10}}/{{binary_total_bytes}}  {{binary_bytes_per_sec:>12}}  {{eta:>4}} left"
        );
        Self::new(name, "bytes", &template, Some(total))
    }

    /// Work on things called `unit`, nobody knows how many.
    pub fn counter(name: &'static str, unit: &'static str) -> Self {
        let template = format!("{name:<9} {{spinner}} {{pos:>6}} {unit}  {{rate:>9}}");
        Self::new(name, unit, &template, None)
    }

    fn new(name: &'static str, unit: &'static str, template: &str, total: Option<u64>) -> Self {
        let count = ProgressBar::with_draw_target(total, ProgressDrawTarget::hidden());
        let span = BARS.load(Ordering::Relaxed).then(|| {
            let span = tracing::info_span!("progress", name);
            span.pb_set_style(&style(template));
            if let Some(total) = total {
                span.pb_set_length(total);
            }
            span.pb_start();
            span
        });
        let lines = span.is_none();
        Self {
            name,
            unit,
            span,
            template: template.to_owned(),
            note: Mutex::default(),
            count,
            lines,
        }
    }

    /// What else there is to tell now: a line below the bar, or a part of the next log line.
    pub fn note(&self, text: &str) {
        let text = sanitize::line(text).into_owned();
        let mut note = self.note.lock().expect("no holder of this lock panics");
        if let Some(span) = &self.span {
            if note.is_none() {
                span.pb_set_style(&style(&format!("{}\n{:10}{{msg}}", self.template, "")));
            }
            span.pb_set_message(&text);
        }
        *note = Some(text);
    }

    /// The amount, where it becomes known later.
    pub fn expect(&self, total: u64) {
        self.count.set_length(total);
        if let Some(span) = &self.span {
            span.pb_set_length(total);
        }
    }

    /// That many more are done.
    pub fn add(&self, n: u64) {
        let before = self.count.position();
        self.count.inc(n);
        if let Some(span) = &self.span {
            span.pb_inc(n);
        }
        if self.lines {
            self.log(before);
        }
    }

    fn log(&self, before: u64) {
        let (done, total) = (self.count.position(), self.count.length());
        let every = LOG_EVERY.max(10_u64.pow(done.max(1).ilog10()) / 2);
        // Ten lines where the end is known; else rarer and rarer, so that a long run does not fill the log.
        let step = total.map_or(every, |total| total.div_ceil(10)).max(1);
        if before / step == done / step {
            return;
        }
        let left_secs = total.map(|_| self.count.eta().as_secs());
        let (name, unit) = (self.name, self.unit);
        let note = self.note.lock().expect("no holder of this lock panics");
        let note = note.as_deref().map(tracing::field::display);
        tracing::info!(
            done,
            total,
            per_sec = tenths(self.count.per_sec()),
            left_secs,
            note,
            "{name}: {unit}"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn runs_side_by_side_have_lines_of_their_own() {
        let seen = async |id| {
            in_run(id, async {
                tokio::task::yield_now().await;
                current_run()
            })
            .await
        };
        assert_eq!(tokio::join!(seen(7), seen(8)), (7, 8));
    }
}
