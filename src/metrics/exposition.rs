//! Groups metric values by family, in the order of the table, and writes the text format of Prometheus:
//! <https://prometheus.io/docs/instrumenting/exposition_formats/>.

use std::collections::BTreeMap;
use std::fmt::Write;

use topicmill_score::labeler::BatchTimes;

use super::table::{self, METRICS};

/// The content type of the text format.
pub(super) const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The lines of each metric, by name.
#[derive(Default)]
pub(super) struct Exposition(BTreeMap<&'static str, String>);

impl Exposition {
    /// Adds a value of a metric; `values` are the values of its labels, in the order of the table.
    pub(super) fn put(&mut self, name: &'static str, values: &[&str], value: f64) {
        let labels = table::find(name)
            .expect("every metric is in the table")
            .labels;
        assert_eq!(labels.len(), values.len(), "{name}");
        let pairs = labels.iter().zip(values).map(|(label, value)| {
            let value = value.replace('\\', r"\\").replace('"', "\\\"");
            format!("{label}=\"{}\"", value.replace('\n', r"\n"))
        });
        let pairs: Vec<String> = pairs.collect();
        let labels = if pairs.is_empty() {
            String::new()
        } else {
            format!("{{{}}}", pairs.join(","))
        };
        self.line(name, format_args!("{name}{labels} {value}"));
    }

    /// Adds a value if there is one.
    pub(super) fn put_some(&mut self, name: &'static str, values: &[&str], value: Option<f64>) {
        if let Some(value) = value {
            self.put(name, values, value);
        }
    }

    /// Adds a count.
    pub(super) fn count(&mut self, name: &'static str, values: &[&str], count: u64) {
        self.put(name, values, real(count));
    }

    /// Adds a histogram of batch durations.
    pub(super) fn times(&mut self, name: &'static str, times: &BatchTimes) {
        let mut sum = 0;
        for (bound, count) in BatchTimes::BOUNDS.iter().zip(times.counts) {
            sum += count;
            self.line(name, format_args!("{name}_bucket{{le=\"{bound}\"}} {sum}"));
        }
        let (count, seconds) = (times.count(), times.seconds);
        self.line(name, format_args!("{name}_bucket{{le=\"+Inf\"}} {count}"));
        self.line(
            name,
            format_args!("{name}_sum {seconds}\n{name}_count {count}"),
        );
    }

    fn line(&mut self, name: &'static str, line: std::fmt::Arguments<'_>) {
        let lines = self.0.entry(name).or_default();
        writeln!(lines, "{line}").expect("writing to a string cannot fail");
    }

    /// Returns the whole text.
    pub(super) fn text(&self) -> String {
        let mut text = String::new();
        for metric in METRICS {
            if let Some(lines) = self.0.get(metric.name) {
                let (name, help, kind) = (metric.name, metric.help, metric.kind.word());
                write!(text, "# HELP {name} {help}\n# TYPE {name} {kind}\n{lines}")
                    .expect("writing to a string cannot fail");
            }
        }
        text
    }
}

#[expect(clippy::cast_precision_loss, reason = "counts are fewer than 2^53")]
pub(super) fn real(count: u64) -> f64 {
    count as f64
}

#[expect(clippy::cast_precision_loss, reason = "counts are fewer than 2^53")]
pub(super) fn whole(count: i64) -> f64 {
    count as f64
}
