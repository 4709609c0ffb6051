//! What a person or a log collector sees on stderr: log lines, and progress bars on a terminal.
//!
//! Progress is a span with a bar (`tracing-indicatif`), so that a log line and a bar never overwrite each
//! other. Where stderr is no terminal there is no bar, and the stages log a line now and then instead.

use std::io::IsTerminal;

use indicatif::ProgressStyle;
use tracing_indicatif::IndicatifLayer;
use tracing_indicatif::span_ext::IndicatifSpanExt;
use tracing_subscriber::filter::EnvFilter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

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
    let filter = EnvFilter::try_from_env("TOPICMILL_LOG").unwrap_or_else(|_| EnvFilter::new(default));
    let registry = tracing_subscriber::registry().with(filter);
    match format {
        LogFormat::Json => {
            let lines = tracing_subscriber::fmt::layer().json().flatten_event(true).with_target(false);
            registry.with(lines.with_writer(std::io::stderr)).init();
        }
        LogFormat::Text if std::io::stderr().is_terminal() => {
            let bars = IndicatifLayer::new();
            let lines = tracing_subscriber::fmt::layer()
                .with_target(false)
                .without_time()
                .with_writer(bars.get_stderr_writer());
            registry.with(lines).with(bars).init();
        }
        LogFormat::Text => {
            let lines = tracing_subscriber::fmt::layer().with_target(false).with_ansi(false);
            registry.with(lines.with_writer(std::io::stderr)).init();
        }
    }
}

/// A bar for work whose amount is known: a count, a rate and the time left.
#[derive(Debug)]
pub struct Progress {
    span: tracing::Span,
}

impl Progress {
    /// A bar named `name` over `total` things called `unit`. Without a terminal it shows nothing.
    pub fn start(name: &'static str, unit: &'static str, total: u64) -> Self {
        let span = tracing::info_span!("progress", name);
        let template = format!(
            "{name:<9} {{bar:24.cyan/dim}} {{pos:>6}}/{{len}} {unit}  {{per_sec:>12}}  {{eta:>4}} left"
        );
        let style = ProgressStyle::with_template(&template).expect("the template is well formed");
        span.pb_set_style(&style.progress_chars("━╸─"));
        span.pb_set_length(total);
        span.pb_start();
        Self { span }
    }

    /// A counter for work whose amount nobody knows: a count and a rate.
    pub fn counter(name: &'static str, unit: &'static str) -> Self {
        let span = tracing::info_span!("progress", name);
        let template = format!("{name:<9} {{spinner}} {{pos:>6}} {unit}  {{per_sec:>12}}");
        span.pb_set_style(&ProgressStyle::with_template(&template).expect("the template is well formed"));
        span.pb_start();
        Self { span }
    }

    /// The amount, where it becomes known later.
    pub fn expect(&self, total: u64) {
        self.span.pb_set_length(total);
    }

    /// That many more are done.
    pub fn add(&self, n: u64) {
        self.span.pb_inc(n);
    }
}
