//! Formats dates, times and periods for sentences.

use chrono::{Datelike, TimeDelta};

use topicmill_core::Timestamp;

/// Length of two periods below which they are formatted as times: a date does not say when on that day a period begins,
/// and a day is more than a third of such a period.
const SHORT_PERIODS: TimeDelta = TimeDelta::days(6);

/// Formats a date as `22 November 2026`.
pub fn day(time: Timestamp) -> String {
    time.as_datetime().format("%-d %B %Y").to_string()
}

/// Formats a time as `22 Nov 2026, 13:05 UTC`.
pub fn moment(time: Timestamp) -> String {
    format!("{}", time.as_datetime().format("%-d %b %Y, %H:%M UTC"))
}

/// Formats a period as `8 to 22 November 2026`.
pub fn period(first: Timestamp, last: Timestamp) -> String {
    let [start, end] = [first, last].map(|time| time.as_datetime().date_naive());
    if start == end {
        return day(last);
    }
    let format = match (start.year() == end.year(), start.month() == end.month()) {
        (true, true) => "%-d",
        (true, false) => "%-d %B",
        _ => "%-d %B %Y",
    };
    format!("{} to {}", start.format(format), day(last))
}

/// Formats two adjoining periods, the second of which ends before `until`: as dates or, if they are short, as times.
pub fn two_periods(from: Timestamp, split: Timestamp, until: Timestamp) -> [String; 2] {
    let last = (until.as_datetime() - TimeDelta::seconds(1)).into();
    if until.as_datetime() - from.as_datetime() < SHORT_PERIODS {
        return [(from, split), (split, last)]
            .map(|(a, b)| format!("{} to {}", moment(a), moment(b)));
    }
    [period(from, split), period(split, last)]
}
