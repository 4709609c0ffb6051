//! Times and periods in words.

use chrono::{Datelike, TimeDelta};

use topicmill_core::Timestamp;

/// The least length of two adjoining periods that are given as dates. Both name the day on which one ends and the other
/// begins: of a period of three days or more, that is a third at most.
const SHORTEST_IN_DATES: TimeDelta = TimeDelta::days(6);

/// Formats a date as `22 November 2026`.
pub fn day(time: Timestamp) -> String {
    time.as_datetime().format("%-d %B %Y").to_string()
}

/// Formats a time as `22 Nov 2026, 13:05 UTC`.
pub fn moment(time: Timestamp) -> String {
    time.as_datetime()
        .format("%-d %b %Y, %H:%M UTC")
        .to_string()
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
    if until.as_datetime() - from.as_datetime() < SHORTEST_IN_DATES {
        return [(from, split), (split, last)]
            .map(|(a, b)| format!("{} to {}", moment(a), moment(b)));
    }
    [period(from, split), period(split, last)]
}

#[cfg(test)]
mod tests {
    use chrono::{DateTime, Utc};

    use super::*;

    fn time(text: &str) -> Timestamp {
        text.parse::<DateTime<Utc>>().unwrap().into()
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
