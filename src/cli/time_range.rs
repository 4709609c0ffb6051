//! Parses the times of `--since` and `--until`.

use chrono::{DateTime, NaiveDate, TimeDelta, Utc};

use super::CliError;
use crate::collect::TimeRange;
use topicmill_core::{Timestamp, parse_duration};

/// Parses `--since` and `--until` of `collect`. For a day, `--since` is its first midnight and `--until` is the
/// midnight that ends it.
pub fn parse_range(
    since: Option<&str>,
    until: Option<&str>,
    now: DateTime<Utc>,
) -> Result<Option<TimeRange>, CliError> {
    let [start, end] = parse_times(since, until, now)?;
    let (Some(start), Some(since)) = (start, since) else {
        return Ok(None);
    };
    if start >= now.into() {
        let text = format!("--since {since} is not in the past, so no post can match");
        return Err(CliError::Usage(text));
    }
    if end > Some(now.into()) {
        tracing::info!("--until is in the future: reading posts up to now");
    }
    Ok(Some(TimeRange {
        since: start,
        until: end,
    }))
}

/// Parses `--since` and `--until`, and checks that they are in order.
pub fn parse_times(
    since: Option<&str>,
    until: Option<&str>,
    now: DateTime<Utc>,
) -> Result<[Option<Timestamp>; 2], CliError> {
    let parse = |flag, text: Option<&str>, days| {
        text.map(|text| parse_time(flag, text, now, days).map(Timestamp::from))
            .transpose()
    };
    let (start, end) = (parse("--since", since, 0)?, parse("--until", until, 1)?);
    if let (Some(since), Some(until)) = (since, until)
        && end <= start
    {
        let text =
            format!("--until {until} is not later than --since {since}, so no post can match");
        return Err(CliError::Usage(text));
    }
    Ok([start, end])
}

/// Parses a time. A day becomes the midnight `days` days after its start.
fn parse_time(
    flag: &str,
    text: &str,
    now: DateTime<Utc>,
    days: i64,
) -> Result<DateTime<Utc>, CliError> {
    let text = text.trim();
    let parsed = if let Ok(day) = text.parse::<NaiveDate>() {
        let midnight = day.and_hms_opt(0, 0, 0).map(|time| time.and_utc());
        midnight.and_then(|time| time.checked_add_signed(TimeDelta::days(days)))
    } else if let Ok(time) = DateTime::parse_from_rfc3339(text) {
        Some(time.to_utc())
    } else {
        let ago = parse_duration(text).ok();
        ago.and_then(|ago| now.checked_sub_signed(ago))
    };
    match parsed {
        // There are no posts before 1970, and databases store years of four digits.
        Some(time) if (0..253_402_300_800).contains(&time.timestamp()) => Ok(time),
        _ => Err(CliError::Usage(format!(
            "{flag} `{text}` is not a time: use a day (UTC) like 2026-11-20, a time like \
             2026-11-20T08:00:00+01:00, or how long ago, like 36h, 1d or 2w"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(since: &str, until: Option<&str>) -> Result<(String, Option<String>), String> {
        let now = "2026-11-22T10:30:00Z".parse().unwrap();
        let words = |time: Timestamp| time.as_datetime().format("%Y-%m-%dT%H:%M:%S").to_string();
        let time_range = parse_range(Some(since), until, now).map_err(|error| error.to_string())?;
        let time_range = time_range.expect("--since is given");
        Ok((words(time_range.since), time_range.until.map(words)))
    }

    #[test]
    fn times_are_days_timestamps_or_ages() {
        for (since, expected) in [
            ("2026-11-20", "2026-11-20T00:00:00"),
            ("2026-11-20T08:00:00+01:00", "2026-11-20T07:00:00"),
            ("2026-11-20T08:00:00Z", "2026-11-20T08:00:00"),
            ("2026-11-20t08:00:00.9z", "2026-11-20T08:00:00"),
            ("1d", "2026-11-21T10:30:00"),
            ("36h", "2026-11-20T22:30:00"),
            ("2w", "2026-11-08T10:30:00"),
            (" 90m ", "2026-11-22T09:00:00"),
        ] {
            assert_eq!(read(since, None).unwrap().0, expected, "{since}");
        }
    }

    #[test]
    fn the_end_of_a_range_is_the_end_of_a_day_and_may_be_in_the_future() {
        let end = |until| read("2026-11-20", Some(until)).unwrap().1.unwrap();
        assert_eq!(end("2026-11-20"), "2026-11-21T00:00:00");
        assert_eq!(end("2027-01-01"), "2027-01-02T00:00:00");
    }

    #[test]
    fn other_words_and_times_that_select_nothing_are_errors() {
        for since in
            "d 1 1y -1d 1.5d 2026-13-01 99999999999999999999d 9999999999w 1900-01-01 １d".split(' ')
        {
            let error = read(since, None).unwrap_err();
            assert!(error.contains("36h, 1d or 2w"), "{since}: {error}");
        }
        for since in ["2026-11-23", "0d", "2026-11-22T12:30:00+01:00"] {
            let error = read(since, None).unwrap_err();
            assert!(error.contains("not in the past"), "{since}: {error}");
        }
        for (until, expected) in [("2026-11-19", "not later than"), ("soon", "--until `soon`")] {
            let error = read("2026-11-20", Some(until)).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
    }
}
