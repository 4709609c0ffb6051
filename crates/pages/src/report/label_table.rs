//! Formats the report's label table: a row for each label, `other` and `unsure`, and what explains them.

use super::data::{Change, Compared, OutcomeStats, Report};
use super::svg::Svg;
use crate::display::{self, counted, interval, percent, points, thousands};
use topicmill_core::ThingKind;
use topicmill_review::as_f64;
use topicmill_review::evaluate::{ENOUGH_ANSWERS, LabelShare, NO_LABEL};
use topicmill_store::PostOutcome;

/// Maximum number of labels in the table.
const LABELS: usize = 200;
/// Maximum number of points in a sparkline.
const SPARK: usize = 60;

/// The label table, formatted for display.
pub struct LabelTable {
    pub rows: Vec<Row>,
    /// Number of labels left out.
    pub left_out: usize,
    /// Number of scored posts.
    pub scored: String,
    pub estimates: Option<Estimates>,
    /// Why no shares are estimated.
    pub not_estimated: String,
    /// A sentence about the columns that sparklines leave out, with a leading space.
    pub about_lines: String,
    /// The periods that are compared.
    pub periods: Option<[String; 2]>,
    pub has_other: bool,
    pub has_unsure: bool,
}

/// The basis of the estimated shares, formatted for display.
pub struct Estimates {
    /// Number of random answers.
    pub answers: String,
    /// Posts that the estimates do not speak of.
    pub left_out: Option<String>,
    /// The share of posts for which no label is right, and its interval.
    pub no_label: Option<[String; 2]>,
}

/// A row in the label table.
pub struct Row {
    pub name: String,
    pub posts: String,
    pub share: String,
    /// The estimated share and its interval.
    pub estimated: Option<[String; 2]>,
    /// The assigned share of the posts that the estimates speak of, if these are not all.
    pub covered: Option<String>,
    pub is_label: bool,
    /// The length of the bar, as a percentage of the longest one.
    pub bar: String,
    pub spark: String,
    pub change: String,
    pub change_class: &'static str,
    /// The change without a constant mix of subreddits, if it differs.
    pub raw_change: Option<String>,
    pub mean: String,
}

impl LabelTable {
    /// Formats the table; `None` if nothing is scored yet.
    pub fn new(report: &Report) -> Option<Self> {
        if report.scored() == 0 {
            return None;
        }
        let largest = report.outcomes.iter().map(|stats| stats.posts).max()?;
        let outcomes = report.outcomes.iter();
        let without_label = outcomes.filter(|stats| stats.outcome != PostOutcome::Labelled);
        let rows = report.labels().take(LABELS).chain(without_label);
        let compared = report.compared.as_ref().ok();
        Some(Self {
            rows: rows.map(|stats| Row::new(report, stats, largest)).collect(),
            left_out: report.labels().count().saturating_sub(LABELS),
            scored: thousands(report.scored()),
            estimates: report.estimates().map(|_| Estimates::new(report)),
            not_estimated: not_estimated(report),
            about_lines: report.axis.about_lines(),
            periods: compared.map(Compared::dates),
            has_other: report.posts_with(PostOutcome::Other) > 0,
            has_unsure: report.posts_with(PostOutcome::Unsure) > 0,
        })
    }

    /// Returns true if a change depends on the mix of subreddits.
    pub fn has_raw_change(&self) -> bool {
        self.rows.iter().any(|row| row.raw_change.is_some())
    }
}

impl Estimates {
    fn new(report: &Report) -> Self {
        let not_covered = Some(report.not_covered()).filter(|posts| *posts > 0);
        Self {
            answers: thousands(report.sampled as u64),
            left_out: not_covered.map(|posts| counted(posts, "post")),
            no_label: report.estimate_of(NO_LABEL).map(estimate),
        }
    }
}

/// Returns the reason why no shares are estimated.
fn not_estimated(report: &Report) -> String {
    match report.sampled {
        _ if report.kind == ThingKind::Comment => {
            "there are no random samples of comments".to_owned()
        }
        answers if answers >= ENOUGH_ANSWERS => "the sample is hardly random".to_owned(),
        answers => format!("that takes {ENOUGH_ANSWERS} random answers, and there are {answers}"),
    }
}

impl Row {
    /// Formats an outcome; its bar is relative to the outcome with the `largest` number of posts.
    fn new(report: &Report, stats: &OutcomeStats, largest: u64) -> Self {
        let shares = report.estimate_of(&stats.slug);
        let difference = stats.change.map(|change| change.share.difference());
        let affected = stats.change.filter(Change::depends_on_mix);
        Self {
            name: display::single_line(&stats.name, 120),
            is_label: stats.outcome == PostOutcome::Labelled,
            posts: thousands(stats.posts),
            share: percent(stats.share),
            covered: shares
                .filter(|_| report.not_covered() > 0)
                .map(|share| percent(share.assigned)),
            estimated: shares.map(estimate),
            bar: format!("{:.1}", 100.0 * as_f64(stats.posts) / as_f64(largest)),
            spark: spark(&stats.series[report.axis.complete()], report.kind.plural()),
            change: or_dash(difference, points),
            change_class: stats.change.map_or("flat", class_of),
            raw_change: affected.map(|change| points(change.share.raw_difference())),
            mean: or_dash(stats.mean_score, display::score),
        }
    }
}

/// Formats an estimated share and its interval.
fn estimate(share: &LabelShare) -> [String; 2] {
    let estimated = &share.estimated;
    [
        or_dash(estimated.value, percent),
        interval(estimated.low, estimated.high),
    ]
}

/// Formats a number, or a dash if it is not known.
fn or_dash(number: Option<f64>, format: fn(f64) -> String) -> String {
    number.map_or_else(|| "–".to_owned(), format)
}

/// Returns the CSS class of a change.
fn class_of(change: Change) -> &'static str {
    match (change.is_significant(), change.share.difference() > 0.0) {
        (false, _) => "flat",
        (true, true) => "up",
        (true, false) => "down",
    }
}

/// Draws a sparkline of posts over time; empty with fewer than two points.
fn spark(series: &[u64], things: &str) -> String {
    let columns_per_point = series.len().div_ceil(SPARK).max(1);
    // Columns are grouped from the end so that the last point covers as many columns as the others.
    let groups = series.rchunks_exact(columns_per_point);
    let mut values: Vec<u64> = groups.map(|columns| columns.iter().sum()).collect();
    values.reverse();
    if values.len() < 2 {
        return String::new();
    }
    let (width, height) = (116.0, 26.0);
    let mut svg = Svg::new(width, height);
    let last = values.len() - 1;
    let largest = as_f64(values.iter().max().copied().unwrap_or(0).max(1));
    let place = |(index, posts): (usize, &u64)| {
        let x = 3.0 + (width - 6.0) * as_f64(index as u64) / as_f64(last as u64);
        (x, height - 3.0 - (height - 7.0) * as_f64(*posts) / largest)
    };
    let places: Vec<_> = values.iter().enumerate().map(place).collect();
    svg.area(&places, height - 1.0, "mark-soft");
    svg.path(&places, "stroke");
    svg.dot(places[last], 2.4, "mark", "");
    let (count, latest) = (values.len(), values[last]);
    let alt = format!("{count} data points, the last with {latest} {things}");
    svg.inline("spark", &alt)
}
