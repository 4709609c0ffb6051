//! Writes the text format of Prometheus: <https://prometheus.io/docs/instrumenting/exposition_formats/>.

use std::fmt::Write;

/// The content type of the text format.
pub(super) const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The metrics as text.
#[derive(Default)]
pub(super) struct Exposition(pub String);

/// A value of a metric, and the value of its label.
type Sample<'a> = (Option<&'a str>, f64);

/// Returns the only value of a metric without a label.
pub(super) fn one<'a>(value: i64) -> [Sample<'a>; 1] {
    [(None, real(value))]
}

impl Exposition {
    pub(super) fn counter(&mut self, name: &str, help: &str, count: u64) {
        let count = i64::try_from(count).unwrap_or(i64::MAX);
        self.family(name, "counter", help, None, one(count));
    }

    pub(super) fn gauge<'a>(
        &mut self,
        name: &str,
        help: &str,
        values: impl IntoIterator<Item = Sample<'a>>,
    ) {
        self.family(name, "gauge", help, None, values);
    }

    /// Adds a gauge with a label.
    pub(super) fn gauges<'a>(
        &mut self,
        name: &str,
        label: &str,
        help: &str,
        values: impl IntoIterator<Item = (&'a str, f64)>,
    ) {
        let values = values
            .into_iter()
            .map(|(label, value)| (Some(label), value));
        self.family(name, "gauge", help, Some(label), values);
    }

    /// Adds a metric, unless it has no value.
    fn family<'a>(
        &mut self,
        name: &str,
        kind: &str,
        help: &str,
        label: Option<&str>,
        values: impl IntoIterator<Item = Sample<'a>>,
    ) {
        let mut lines = String::new();
        for (value_of_label, value) in values {
            let labels = label.zip(value_of_label).map(|(label, value)| {
                let value = value.replace('\\', r"\\").replace('"', "\\\"");
                format!("{{{label}=\"{}\"}}", value.replace('\n', r"\n"))
            });
            let labels = labels.unwrap_or_default();
            writeln!(lines, "{name}{labels} {value}").expect("writing to a string cannot fail");
        }
        if !lines.is_empty() {
            write!(
                self.0,
                "# HELP {name} {help}\n# TYPE {name} {kind}\n{lines}"
            )
            .expect("writing to a string cannot fail");
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "counts are fewer than 2^53")]
pub(super) fn real(count: i64) -> f64 {
    count as f64
}
