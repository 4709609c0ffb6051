//! Times and periods in words.

use chrono::{Datelike, TimeDelta};

use topicmill_core::Timestamp;

/// The least length of two adjoining periods that are given as dates. Both name the day on which one ends and the other
/// begins: of a half of three days or more, that is a third at most.
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
    use topicmill_core::table;

    fn time(text: &str) -> Timestamp {
        text.parse::<DateTime<Utc>>().unwrap().into()
    }

    #[test]
    fn periods_omit_repeated_months_and_years() {
        for (first, last, expected) in table! {
            "2026-11-08T17:00:00Z", "2026-11-22T13:00:00Z", "8 to 22 November 2026";
            "2026-10-08T17:00:00Z", "2026-11-22T13:00:00Z", "8 October to 22 November 2026";
            "2026-11-22T01:00:00Z", "2026-11-22T13:00:00Z", "22 November 2026";
            "2025-11-22T01:00:00Z", "2026-11-22T13:00:00Z", "22 November 2025 to 22 November 2026";
        } {
            assert_eq!(period(time(first), time(last)), expected);
        }
    }

    #[test]
    fn two_periods_of_under_six_days_are_times() {
        let [from, split] = ["2026-11-08T00:00:00Z", "2026-11-10T12:00:00Z"].map(time);
        let [_, short] = two_periods(from, split, time("2026-11-13T23:59:59Z"));
        assert_eq!(short, "10 Nov 2026, 12:00 UTC to 13 Nov 2026, 23:59 UTC");
        let long = two_periods(from, split, time("2026-11-14T00:00:00Z"));
        assert_eq!(long, ["8 to 10 November 2026", "10 to 13 November 2026"]);
    }
}
