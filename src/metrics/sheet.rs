//! Values put together as families, in the order of the table, and written as text.

use std::collections::BTreeMap;

use prometheus::proto::{
    Bucket, Counter, Gauge, Histogram, LabelPair, Metric as Series, MetricFamily, MetricType,
};
use prometheus::{TEXT_FORMAT, TextEncoder};
use topicmill_score::labeler::BatchTimes;

use super::table::{self, Kind, METRICS};

/// What HTTP says of the text.
pub(super) const CONTENT_TYPE: &str = TEXT_FORMAT;

/// Values by the names of their metrics.
#[derive(Default)]
pub(super) struct Sheet(BTreeMap<&'static str, Vec<Series>>);

impl Sheet {
    /// Puts a value of a metric down; `values` are those of its labels, in the order of the table.
    pub(super) fn put(&mut self, name: &'static str, values: &[&str], value: f64) {
        let metric = table::row(name).expect("every metric is in the table");
        let mut series = Series::from_label(labels(metric.labels, values));
        match metric.kind {
            Kind::Counter => {
                let mut counter = Counter::default();
                counter.set_value(value);
                series.set_counter(counter);
            }
            Kind::Gauge | Kind::Histogram => {
                let mut gauge = Gauge::default();
                gauge.set_value(value);
                series.set_gauge(gauge);
            }
        }
        self.0.entry(name).or_default().push(series);
    }

    /// The same, of a value that may not be there.
    pub(super) fn put_some(&mut self, name: &'static str, values: &[&str], value: Option<f64>) {
        if let Some(value) = value {
            self.put(name, values, value);
        }
    }

    /// A count.
    pub(super) fn count(&mut self, name: &'static str, values: &[&str], count: u64) {
        self.put(name, values, real(count));
    }

    /// How long batches took.
    pub(super) fn times(&mut self, name: &'static str, times: &BatchTimes) {
        let mut cumulative = 0;
        let buckets = BatchTimes::BOUNDS.iter().zip(times.counts);
        let buckets = buckets.map(|(bound, count)| {
            cumulative += count;
            let mut bucket = Bucket::default();
            bucket.set_upper_bound(*bound);
            bucket.set_cumulative_count(cumulative);
            bucket
        });
        let mut histogram = Histogram::default();
        histogram.set_bucket(buckets.collect());
        histogram.set_sample_count(times.count());
        histogram.set_sample_sum(times.seconds);
        let mut series = Series::default();
        series.set_histogram(histogram);
        self.0.entry(name).or_default().push(series);
    }

    /// All of it as text.
    pub(super) fn text(mut self) -> String {
        let families: Vec<MetricFamily> = METRICS
            .iter()
            .filter_map(|metric| {
                let series = self.0.remove(metric.name)?;
                let mut family = MetricFamily::default();
                family.set_name(metric.name.to_owned());
                family.set_help(metric.help.to_owned());
                family.set_field_type(match metric.kind {
                    Kind::Counter => MetricType::COUNTER,
                    Kind::Gauge => MetricType::GAUGE,
                    Kind::Histogram => MetricType::HISTOGRAM,
                });
                family.set_metric(series);
                Some(family)
            })
            .collect();
        let text = TextEncoder::new().encode_to_string(&families);
        text.expect("every family has a name and a value")
    }
}

fn labels(names: &[&str], values: &[&str]) -> Vec<LabelPair> {
    assert_eq!(names.len(), values.len(), "{names:?} {values:?}");
    let pairs = names.iter().zip(values);
    pairs
        .map(|(name, value)| {
            let mut pair = LabelPair::default();
            pair.set_name((*name).to_owned());
            pair.set_value((*value).to_owned());
            pair
        })
        .collect()
}

#[expect(clippy::cast_precision_loss, reason = "counts are fewer than 2^53")]
pub(super) fn real(count: u64) -> f64 {
    count as f64
}

#[expect(clippy::cast_precision_loss, reason = "counts are fewer than 2^53")]
pub(super) fn whole(count: i64) -> f64 {
    count as f64
}
