//! Cron lines in a time zone: parses a line and computes due times.
//!
//! The croner crate parses and computes, including daylight saving time. This module rejects lines whose
//! meaning differs between programs.

use std::fmt;

use chrono::{DateTime, TimeDelta, Utc};
use chrono_tz::Tz;
use croner::Cron;
use croner::parser::{CronParser, Seconds, Year};

/// Maximum time between two due times of a line, for a leap day around the year 2100.
const LONGEST_GAP: TimeDelta = TimeDelta::days(3_000);

/// A cron line in a time zone.
#[derive(Debug, Clone)]
pub struct Timetable {
    line: String,
    zone: Tz,
    cron: Cron,
}

impl fmt::Display for Timetable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.line, self.zone)
    }
}

impl PartialEq for Timetable {
    fn eq(&self, other: &Self) -> bool {
        (&self.line, self.zone) == (&other.line, other.zone)
    }
}

impl Timetable {
    /// Reads a line of five fields, or one of `@hourly`, `@daily`, `@weekly`, `@monthly` and `@yearly`.
    ///
    /// # Errors
    /// Returns the mistake in the line.
    pub fn new(line: &str, zone: Tz) -> Result<Self, String> {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let line = fields.join(" ");
        let is_any = |field: &str| matches!(field, "*" | "?");
        if let [_, _, day, _, weekday] = fields[..]
            && !is_any(day)
            && !is_any(weekday)
        {
            return Err(format!(
                "`{line}` names days of the month and days of the week, which programs read in different ways: write \
                 two schedules, and `*` for one of the two fields in each"
            ));
        }
        let parser = CronParser::builder()
            .seconds(Seconds::Disallowed)
            .year(Year::Disallowed)
            .build();
        let cron = parser.parse(&line).map_err(|error| {
            format!("`{line}`: {error}; write five fields, as in `*/15 * * * *`")
        })?;
        let timetable = Self { line, zone, cron };
        // The calendar repeats after 400 years, so croner finds every existing day.
        if timetable.after(DateTime::UNIX_EPOCH).is_none() {
            return Err(format!("`{}` is never due", timetable.line));
        }
        Ok(timetable)
    }

    /// Returns a warning about a step that does not divide the hour, day, month or year: cron starts again at each of
    /// them, so `*/90` is due every hour.
    pub fn caveat(&self) -> Option<String> {
        let ranges = [
            (0..60, "minutes", "hour"),
            (0..24, "hours", "day"),
            (1..32, "days", "month"),
            (1..13, "months", "year"),
        ];
        for (field, (numbers, units, period)) in self.line.split(' ').zip(ranges) {
            let step = field.strip_prefix("*/").and_then(|step| step.parse().ok());
            if let Some(step) = step.filter(|step| numbers.len() % step != 0) {
                let due: Vec<String> = numbers.step_by(step).map(|n| n.to_string()).collect();
                let due = due.join(", ");
                return Some(format!(
                    "`{field}` starts again with every {period}: it is due only at {units} {due}"
                ));
            }
        }
        None
    }

    /// Returns the line, with fields separated by one space.
    pub fn line(&self) -> &str {
        &self.line
    }

    /// Returns the time zone.
    pub fn zone(&self) -> Tz {
        self.zone
    }

    /// Returns the first due time after a moment; `None` if there is none.
    pub fn after(&self, moment: DateTime<Utc>) -> Option<DateTime<Utc>> {
        let local = moment.with_timezone(&self.zone);
        let next = self.cron.find_next_occurrence(&local, false).ok()?;
        Some(next.with_timezone(&Utc))
    }

    /// Returns the last due time up to a moment, inclusive.
    pub fn latest(&self, moment: DateTime<Utc>) -> Option<DateTime<Utc>> {
        // A search goes forward only, so that a due time is the same however it is found. Each begins twice as far back.
        let mut span = TimeDelta::minutes(1);
        loop {
            let due = |from| self.after(from).filter(|due| *due <= moment);
            if let Some(last) = std::iter::successors(due(moment - span), |at| due(*at)).last() {
                return Some(last);
            }
            if span > LONGEST_GAP {
                return None;
            }
            span = span * 2;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ambiguous_and_invalid_lines_are_rejected_with_advice() {
        for (line, says) in [
            ("* * * *", "five fields"),
            ("* * * * * *", "five fields"),
            ("0 0 */2 * 1", "write two schedules"),
            ("0 0 1 * MON", "write two schedules"),
            ("0 0 30 2 *", "is never due"),
            ("61 * * * *", "five fields"),
            ("@often", "five fields"),
        ] {
            let error = Timetable::new(line, Tz::UTC).unwrap_err();
            assert!(error.contains(says), "{line}: {error}");
        }
        for (line, due) in [
            ("0 0 */31 * ?", None),
            ("0 0 */9 * ?", Some("days 1, 10, 19, 28")),
            ("0 0 1 */5 *", Some("months 1, 6, 11")),
            ("*/20 */6 * * 1-5", None),
            ("@daily", None),
            ("*/90 * * * *", Some("minutes 0")),
            ("5 */9 * * *", Some("hours 0, 9, 18")),
        ] {
            let caveat = Timetable::new(line, Tz::UTC).unwrap().caveat();
            assert_eq!(caveat.is_some(), due.is_some(), "{line}: {caveat:?}");
            assert!(
                caveat
                    .unwrap_or_default()
                    .ends_with(due.unwrap_or_default())
            );
        }
    }

    #[test]
    fn due_times_follow_the_time_zone() {
        let next = |line: &str, from: &str| {
            let table = Timetable::new(line, Tz::Europe__Berlin).unwrap();
            table.after(from.parse().unwrap()).unwrap().to_rfc3339()
        };
        // In winter, and on 29 March, when 02:30 does not exist.
        let daily = "30 2 * * *";
        assert_eq!(
            next(daily, "2026-01-05T12:00:00Z"),
            "2026-01-06T01:30:00+00:00"
        );
        assert_eq!(
            next(daily, "2026-03-28T12:00:00Z"),
            "2026-03-29T01:00:00+00:00"
        );
    }

    #[test]
    fn the_latest_due_time_is_the_one_after_which_the_next_follows() {
        for (line, moment, expected) in [
            ("* * * * *", "2026-03-29T00:59:59Z", "2026-03-29T00:59:00Z"),
            ("30 2 * * *", "2026-03-29T01:00:00Z", "2026-03-29T01:00:00Z"),
            ("30 2 * * *", "2026-03-29T00:59:59Z", "2026-03-28T01:30:00Z"),
            ("0 0 29 2 *", "2104-02-28T22:59:59Z", "2096-02-28T23:00:00Z"),
        ] {
            let table = Timetable::new(line, Tz::Europe__Berlin).unwrap();
            let latest = table.latest(moment.parse().unwrap());
            assert_eq!(latest, Some(expected.parse().unwrap()), "{line} {moment}");
        }
    }
}
