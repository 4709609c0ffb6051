//! What a person or a log collector sees on stderr: log lines, and progress bars on a terminal.
//!
//! Progress is a span with a bar (`tracing-indicatif`), so that a log line and a bar never overwrite each
//! other. Where stderr is no terminal there is no bar, and the stages log a line now and then instead.

use std::io::IsTerminal;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};
use tracing_indicatif::IndicatifLayer;
use tracing_indicatif::span_ext::IndicatifSpanExt;
use tracing_subscriber::filter::EnvFilter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

/// A log line every so many, where nobody knows how many there will be.
const LOG_EVERY: u64 = 5_000;

/// Whether bars are drawn: where they are not, log lines tell how far work is.
static BARS: AtomicBool = AtomicBool::new(false);

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
    // ONNX Runtime says at WARN what it does with every graph.
    let default = format!("{default},ort=error");
    let filter =
        EnvFilter::try_from_env("TOPICMILL_LOG").unwrap_or_else(|_| EnvFilter::new(default));
    let registry = tracing_subscriber::registry().with(filter);
    match format {
        LogFormat::Json => {
            let lines = tracing_subscriber::fmt::layer()
                .json()
                .flatten_event(true)
                .with_target(false);
            registry.with(lines.with_writer(std::io::stderr)).init();
        }
        LogFormat::Text if std::io::stderr().is_terminal() => {
            BARS.store(true, Ordering::Relaxed);
            let bars = IndicatifLayer::new();
            let lines = tracing_subscriber::fmt::layer()
                .with_target(false)
                .without_time()
                .with_writer(bars.get_stderr_writer());
            registry.with(lines).with(bars).init();
        }
        LogFormat::Text => {
            let lines = tracing_subscriber::fmt::layer()
                .with_target(false)
                .with_ansi(false);
            registry.with(lines.with_writer(std::io::stderr)).init();
        }
    }
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
    pub fn note(&self, text: String) {
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
        let step = total.map_or(LOG_EVERY, |total| total.div_ceil(10)).max(1);
        if before / step == done / step {
            return;
        }
        let left_secs = total.map(|_| self.count.eta().as_secs());
        let (name, unit) = (self.name, self.unit);
        let note = self.note.lock().expect("no holder of this lock panics");
        let note = note.as_deref().map(tracing::field::display);
        tracing::info!(done, total, rate = %format_args!("{:.1}/s", self.count.per_sec()), left_secs, note, "{name}: {unit}");
    }
}
