//! The time axis for charts. Its columns cover one or more hours, days or months.

mod dates;

use std::ops::Range;

use chrono::{Datelike, Months, NaiveDateTime, NaiveTime, TimeDelta, Timelike};

pub use self::dates::{day, moment, period, two_periods};
use topicmill_core::Timestamp;
use topicmill_review::as_f64;
use topicmill_store::TimeStep;

/// Maximum number of columns in a chart: with this many, each is about two pixels wide on a phone.
const MOST: usize = 120;
/// Maximum number of steps on an axis before they are grouped into columns: a century of months.
const MOST_STEPS: usize = 1_200;

/// Consecutive columns on the time axis.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Axis {
    /// Length of a step.
    pub step: TimeStep,
    /// Number of steps per column.
    pub steps: usize,
    /// Start time of each column.
    pub starts: Vec<NaiveDateTime>,
    /// True if posts begin long after the start of the first column.
    pub first_is_incomplete: bool,
    /// True if posts end long before the end of the last column, as on the day of the collection.
    pub last_is_incomplete: bool,
    /// Times of the first and the last post.
    span: Option<(Timestamp, Timestamp)>,
}

/// A column is complete if no more than this share of its time is missing: about an hour in a day.
const MISSING_SHARE: f64 = 0.05;
/// The longest gap that may be due to chance, as a multiple of the mean interval between posts. If posts are
/// independent, the probability of a longer gap is e⁻³ = 5 %.
const MISSING_GAPS: f64 = 3.0;

/// Rounds a time down to the start of its step.
fn floor(step: TimeStep, time: NaiveDateTime) -> NaiveDateTime {
    let midnight = time.date().and_time(NaiveTime::MIN);
    match step {
        TimeStep::Hour => midnight + TimeDelta::hours(i64::from(time.hour())),
        TimeStep::Day => midnight,
        TimeStep::Month => midnight.with_day(1).expect("each month has a first day"),
    }
}

/// Returns the start of the next step.
fn after(step: TimeStep, time: NaiveDateTime) -> Option<NaiveDateTime> {
    match step {
        TimeStep::Hour => time.checked_add_signed(TimeDelta::hours(1)),
        TimeStep::Day => time.checked_add_signed(TimeDelta::days(1)),
        TimeStep::Month => time.checked_add_months(Months::new(1)),
    }
}

/// Parses a time in the store's format.
fn parse(step: TimeStep, text: &str) -> Option<NaiveDateTime> {
    let whole = match step {
        TimeStep::Hour => format!("{text}:00:00"),
        TimeStep::Day => format!("{text}T00:00:00"),
        TimeStep::Month => format!("{text}-01T00:00:00"),
    };
    NaiveDateTime::parse_from_str(&whole, "%Y-%m-%dT%H:%M:%S").ok()
}

impl Axis {
    /// Creates an axis from the first post to the last.
    pub fn new(step: TimeStep, first: Timestamp, last: Timestamp) -> Self {
        let span = Some((first, last));
        let first = floor(step, first.as_datetime().naive_utc());
        let last = last.as_datetime().naive_utc();
        let times = std::iter::successors(Some(first), |time| after(step, *time));
        let times: Vec<_> = times
            .take_while(|time| *time <= last)
            // A post with a wrong date far in the future must not create a huge axis.
            .take(MOST_STEPS)
            .collect();
        let steps = times.len().div_ceil(MOST).max(1);
        Self {
            step,
            steps,
            starts: times.into_iter().step_by(steps).collect(),
            first_is_incomplete: false,
            last_is_incomplete: false,
            span,
        }
    }

    /// Determines whether the first and the last column are incomplete, given the number of posts.
    pub fn mark_incomplete(&mut self, posts: u64) {
        let (Some((first, last)), Some(start), Some(end)) =
            (self.span, self.starts.first(), self.starts.last())
        else {
            return;
        };
        let [first, last] = [first, last].map(|time| time.as_datetime().naive_utc());
        let seconds = |from: NaiveDateTime, to: NaiveDateTime| {
            as_f64((to - from).num_seconds().max(0).cast_unsigned())
        };
        let gap = seconds(first, last) / as_f64(posts.saturating_sub(1).max(1));
        let is_missing = |missing: f64, column: f64| {
            missing > MISSING_SHARE * column && missing > MISSING_GAPS * gap
        };
        self.first_is_incomplete =
            is_missing(seconds(*start, first), seconds(*start, self.end(*start)));
        self.last_is_incomplete =
            is_missing(seconds(last, self.end(*end)), seconds(*end, self.end(*end)));
    }

    /// Returns the end of the column that starts at a time.
    fn end(&self, start: NaiveDateTime) -> NaiveDateTime {
        let steps = std::iter::successors(Some(start), |time| after(self.step, *time));
        steps.take(self.steps + 1).last().unwrap_or(start)
    }

    /// Returns true if a column is incomplete.
    pub fn is_incomplete(&self, column: usize) -> bool {
        column == 0 && self.first_is_incomplete
            || column + 1 == self.len() && self.last_is_incomplete
    }

    /// Returns the columns that lines connect: the complete ones, or all columns if too few are complete for a line.
    pub fn complete(&self) -> Range<usize> {
        let columns = usize::from(self.first_is_incomplete)
            ..self.len() - usize::from(self.last_is_incomplete);
        if columns.len() < 2 {
            0..self.len()
        } else {
            columns
        }
    }

    /// Returns which columns are incomplete: `first`, `last` or `first and last`; `None` if all are complete.
    fn incomplete(&self) -> Option<&'static str> {
        match (self.first_is_incomplete, self.last_is_incomplete) {
            (false, false) => None,
            (true, false) => Some("first"),
            (false, true) => Some("last"),
            (true, true) => Some("first and last"),
        }
    }

    /// Returns a sentence about incomplete columns in a column chart, with a leading space; empty if there are none.
    pub fn about_columns(&self, things: &str) -> String {
        let (Some(which), Some((first, last))) = (self.incomplete(), self.span) else {
            return String::new();
        };
        let are = if self.first_is_incomplete && self.last_is_incomplete {
            "columns are paler because they are incomplete"
        } else {
            "column is paler because it is incomplete"
        };
        let (first, last) = (moment(first), moment(last));
        format!(" The {which} {are}: the {things} are from {first} to {last}.")
    }

    /// Returns a sentence about the columns that lines leave out, with a leading space; empty if there are none.
    pub fn about_lines(&self) -> String {
        let Some(which) = self.incomplete() else {
            return String::new();
        };
        if self.complete().len() == self.len() {
            return String::new();
        }
        let unit = if self.steps == 1 {
            self.step.word()
        } else {
            "column"
        };
        let are = if self.first_is_incomplete && self.last_is_incomplete {
            "s, which are"
        } else {
            ", which is"
        };
        format!(" Lines leave out the {which} {unit}{are} incomplete.")
    }

    /// Returns the number of columns.
    pub fn len(&self) -> usize {
        self.starts.len()
    }

    /// Returns the column for a time in the store's format.
    pub fn column(&self, time: &str) -> Option<usize> {
        self.column_at(parse(self.step, time)?)
    }

    /// Returns the column for a time; `None` if the time is before the axis.
    pub fn column_of(&self, time: Timestamp) -> Option<usize> {
        self.column_at(time.as_datetime().naive_utc())
    }

    fn column_at(&self, time: NaiveDateTime) -> Option<usize> {
        let begun = self.starts.partition_point(|start| *start <= time);
        begun.checked_sub(1)
    }

    /// Returns the name of a column: `22 Nov 13:00`, `22 Nov` or `Nov 2026`.
    pub fn name(&self, column: usize) -> String {
        let format = match self.step {
            TimeStep::Hour => "%-d %b %H:%M",
            TimeStep::Day => "%-d %b",
            TimeStep::Month => "%b %Y",
        };
        let start = self.starts.get(column);
        start.map_or_else(String::new, |start| start.format(format).to_string())
    }

    /// Returns the length of a column in words: `day`, `week`, `5 days`.
    pub fn unit(&self) -> String {
        match (self.step, self.steps) {
            (step, 1) => step.word().to_owned(),
            (TimeStep::Day, 7) => "week".to_owned(),
            (step, steps) => format!("{steps} {}s", step.word()),
        }
    }

    /// Returns the length of a column with an article: `an hour`, `a week`, `5 days`.
    pub fn one_unit(&self) -> String {
        let unit = self.unit();
        let article = match unit.chars().next() {
            Some('h') => "an ",
            Some('0'..='9') => "",
            _ => "a ",
        };
        format!("{article}{unit}")
    }

    /// Returns at most `most` evenly spaced columns for tick labels.
    pub fn ticks(&self, most: usize) -> Vec<usize> {
        let step = self.len().div_ceil(most.max(1)).max(1);
        (0..self.len()).step_by(step).collect()
    }
}

#[cfg(test)]
mod tests {
    use chrono::{DateTime, Utc};

    use super::*;

    fn time(text: &str) -> Timestamp {
        text.parse::<DateTime<Utc>>().unwrap().into()
    }

    #[test]
    fn columns_are_consecutive_and_bounded() {
        let axis = Axis::new(
            TimeStep::Day,
            time("2026-01-30T23:59:59Z"),
            time("2026-02-02T00:00:00Z"),
        );
        assert_eq!(axis.len(), 4);
        assert_eq!(axis.name(0), "30 Jan");
        assert_eq!(axis.column("2026-02-01"), Some(2));
        assert_eq!(axis.column("2026-01-29"), None);
        assert_eq!(axis.unit(), "day");
        assert_eq!(axis.one_unit(), "a day");
        let start = time("2026-01-30T23:59:59Z");
        assert_eq!(
            Axis::new(TimeStep::Hour, start, start).one_unit(),
            "an hour"
        );
        let axis = Axis::new(
            TimeStep::Day,
            time("2025-01-01T00:00:00Z"),
            time("2026-01-31T00:00:00Z"),
        );
        assert_eq!((axis.len(), axis.one_unit().as_str()), (99, "4 days"));
        assert_eq!(axis.column("2026-01-31"), Some(98));
        assert_eq!(axis.ticks(5).len(), 5);
        let months = Axis::new(
            TimeStep::Month,
            time("2005-06-23T00:00:00Z"),
            time("2026-01-31T00:00:00Z"),
        );
        assert_eq!((months.len(), months.column("2005-06")), (83, Some(0)));
        let hour = Axis::new(
            TimeStep::Hour,
            time("2026-01-01T05:30:00Z"),
            time("2026-01-01T05:30:00Z"),
        );
        assert_eq!((hour.len(), hour.name(0).as_str()), (1, "1 Jan 05:00"));
        let millennia = Axis::new(
            TimeStep::Month,
            Timestamp::EPOCH,
            time("9999-01-01T00:00:00Z"),
        );
        assert!(millennia.len() <= MOST);
    }

    #[test]
    fn periods_omit_repeated_months_and_years() {
        let shown = |a: &str, b: &str| period(time(a), time(b));
        assert_eq!(
            shown("2026-11-08T17:00:00Z", "2026-11-22T13:00:00Z"),
            "8 to 22 November 2026"
        );
        assert_eq!(
            shown("2026-10-08T17:00:00Z", "2026-11-22T13:00:00Z"),
            "8 October to 22 November 2026"
        );
        assert_eq!(
            shown("2026-11-22T01:00:00Z", "2026-11-22T13:00:00Z"),
            "22 November 2026"
        );
        assert_eq!(
            shown("2025-11-22T01:00:00Z", "2026-11-22T13:00:00Z"),
            "22 November 2025 to 22 November 2026"
        );
    }
}
