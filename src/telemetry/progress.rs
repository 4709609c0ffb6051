//! The progress of some work: a bar on a terminal, otherwise log lines.

use std::sync::{Mutex, OnceLock};
use std::time::Duration;

use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};

use super::{sanitize, tenths};

/// Minimum number of items between two log lines if the total is unknown. The interval grows with the count: about
/// twenty lines for each factor of ten.
const LOG_EVERY: u64 = 5_000;

/// The progress bars, on a terminal; otherwise log lines report progress.
pub(super) static BARS: OnceLock<MultiProgress> = OnceLock::new();

static LATEST: Mutex<Option<Latest>> = Mutex::new(None);

/// The latest progress.
#[derive(Debug, Clone)]
pub(super) struct Latest {
    pub(super) name: &'static str,
    pub(super) unit: &'static str,
    pub(super) count: ProgressBar,
}

/// Returns the progress that started last, unless it has ended.
pub(super) fn latest() -> Option<Latest> {
    LATEST.lock().map_or(None, |latest| latest.clone())
}

fn style(template: &str) -> ProgressStyle {
    let style = ProgressStyle::with_template(template);
    let style = style.expect("the template is well formed");
    style.progress_chars("━╸─").with_key("rate", rate)
}

/// Formats the rate of a bar with one decimal.
fn rate(state: &ProgressState, out: &mut dyn std::fmt::Write) {
    // An error of a progress bar cannot be reported.
    let _ = write!(out, "{:.1}/s", state.per_sec());
}

/// Progress of some work: a bar on a terminal, otherwise a log line at each tenth.
#[derive(Debug)]
pub struct Progress {
    name: &'static str,
    unit: &'static str,
    /// The template of the bar.
    template: String,
    /// The note shown with it.
    note: Mutex<Option<String>>,
    /// Tracks count, rate and time left, and draws the bar on a terminal.
    count: ProgressBar,
    /// True if log lines replace the bar.
    lines: bool,
}

impl Progress {
    /// Starts the progress of `total` items of the given unit.
    pub fn start(name: &'static str, unit: &'static str, total: u64) -> Self {
        let template = format!(
            "{name:<9} {{bar:24.cyan/dim}} {{pos:>6}}/{{len}} {unit}  {{rate:>9}}  {{eta:>4}} left"
        );
        Self::new(name, unit, &template, Some(total))
    }

    /// Starts the progress of work that logs its own lines: without a terminal nothing is shown.
    pub fn bar(name: &'static str, unit: &'static str, total: u64) -> Self {
        let mut progress = Self::start(name, unit, total);
        progress.lines = false;
        progress
    }

    /// Starts the progress of a number of bytes.
    pub fn bytes(name: &'static str, total: u64) -> Self {
        let template = format!(
            "{name:<9} {{bar:24.cyan/dim}} \
             {{binary_bytes:>10}}/{{binary_total_bytes}}  {{binary_bytes_per_sec:>12}}  {{eta:>4}} left"
        );
        Self::new(name, "bytes", &template, Some(total))
    }

    /// Starts the progress of an unknown number of items.
    pub fn counter(name: &'static str, unit: &'static str) -> Self {
        let template = format!("{name:<9} {{spinner}} {{pos:>6}} {unit}  {{rate:>9}}");
        Self::new(name, unit, &template, None)
    }

    fn new(name: &'static str, unit: &'static str, template: &str, total: Option<u64>) -> Self {
        let mut count = ProgressBar::with_draw_target(total, ProgressDrawTarget::hidden());
        if let Some(bars) = BARS.get() {
            count = bars.add(count.with_style(style(template)));
            count.enable_steady_tick(Duration::from_millis(100));
        }
        if let Ok(mut latest) = LATEST.lock() {
            let count = count.clone();
            *latest = Some(Latest { name, unit, count });
        }
        Self {
            name,
            unit,
            template: template.to_owned(),
            note: Mutex::default(),
            count,
            lines: BARS.get().is_none(),
        }
    }

    /// Sets the note: a line below the bar, or a field of the next log line.
    pub fn note(&self, text: &str) {
        let text = sanitize::line(text).into_owned();
        let mut note = self.note.lock().expect("no holder of this lock panics");
        if note.is_none() {
            let template = format!("{}\n{:10}{{msg}}", self.template, "");
            self.count.set_style(style(&template));
        }
        self.count.set_message(text.clone());
        *note = Some(text);
    }

    /// Sets the total once it is known.
    pub fn expect(&self, total: u64) {
        self.count.set_length(total);
    }

    /// Adds `n` finished items.
    pub fn add(&self, n: u64) {
        let before = self.count.position();
        self.count.inc(n);
        self.log(before);
    }

    /// Sets the number of finished items, which may be lower than before.
    pub fn set(&self, done: u64) {
        let before = self.count.position();
        self.count.set_position(done);
        self.log(before);
    }

    /// Logs the progress since `before`, if log lines replace the bar.
    fn log(&self, before: u64) {
        let (done, total) = (self.count.position(), self.count.length());
        let every = LOG_EVERY.max(10_u64.pow(done.max(1).ilog10()) / 2);
        // Ten lines if the total is known; otherwise at growing intervals, so that a long run does not fill the log.
        let step = total.map_or(every, |total| total.div_ceil(10)).max(1);
        if !self.lines || before / step == done / step {
            return;
        }
        let note = self.note.lock().expect("no holder of this lock panics");
        tracing::info!(
            done,
            total,
            per_sec = tenths(self.count.per_sec()),
            left_secs = total.map(|_| self.count.eta().as_secs()),
            note = note.as_deref().map(tracing::field::display),
            "{}: {}",
            self.name,
            self.unit
        );
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Ok(mut latest) = LATEST.lock() {
            *latest = None;
        }
    }
}
