//! Cron lines in a time zone: parses a line and computes due times.
//!
//! The croner crate parses and computes, including daylight saving time. This module rewords croner's errors, and
//! rejects lines whose meaning differs between programs.

use std::fmt;

use chrono::{DateTime, Utc};
use chrono_tz::Tz;
use croner::Cron;
use croner::errors::CronError;
use croner::parser::{CronParser, Seconds, Year};

/// Reasons to reject a cron line.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TimetableError {
    /// It does not have five fields.
    #[error(
        "the cron line `{0}` has {1} fields: write five, for minute, hour, day of month, month and day of week, as in \
         `*/15 * * * *`; nothing runs more often than once a minute"
    )]
    Fields(String, usize),
    /// Both the day of month and the day of week are restricted.
    #[error(
        "the cron line `{0}` names days of the month and days of the week, which programs read in different ways: \
         write two schedules, and `*` for one of the two fields in each"
    )]
    Days(String),
    /// A field cannot be parsed.
    #[error("the cron line `{0}`: {1}; see docs/schedule.md for the syntax of the five fields")]
    Line(String, String),
    /// The line names only days that do not exist.
    #[error(
        "the cron line `{0}` is never due: no year has such a day; correct its days and months"
    )]
    Never(String),
}

/// A cron line in a time zone.
#[derive(Clone)]
pub struct Timetable {
    line: String,
    zone: Tz,
    cron: Cron,
}

impl fmt::Debug for Timetable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Timetable({self})")
    }
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
    /// See [`TimetableError`].
    pub fn new(line: &str, zone: Tz) -> Result<Self, TimetableError> {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let line = fields.join(" ");
        let is_any = |field: &str| matches!(field, "*" | "?");
        match fields[..] {
            [word] if word.starts_with('@') => {}
            [_, _, day, _, weekday] if is_any(day) || is_any(weekday) => {}
            [_, _, _, _, _] => return Err(TimetableError::Days(line)),
            _ => return Err(TimetableError::Fields(line, fields.len())),
        }
        let parser = CronParser::builder()
            .seconds(Seconds::Disallowed)
            .year(Year::Disallowed)
            .build();
        let cron = parser
            .parse(&line)
            .map_err(|error| TimetableError::Line(line.clone(), message_of(&error)))?;
        let timetable = Self { line, zone, cron };
        // The calendar repeats after 400 years, so croner finds every existing day.
        if timetable.after(DateTime::UNIX_EPOCH).is_none() {
            return Err(TimetableError::Never(timetable.line));
        }
        Ok(timetable)
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
}

/// Returns a croner error's message without croner's terms.
fn message_of(error: &CronError) -> String {
    let text = match error {
        CronError::ComponentError(text)
        | CronError::InvalidPattern(text)
        | CronError::IllegalCharacters(text) => text.clone(),
        other => other.to_string(),
    };
    text.trim_end_matches('.').replace("CronPattern", "it")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ambiguous_and_invalid_lines_are_rejected_with_advice() {
        for (line, says) in [
            ("* * * *", "has 4 fields"),
            ("* * * * * *", "once a minute"),
            ("0 0 */2 * 1", "write two schedules"),
            ("0 0 1 * MON", "write two schedules"),
            ("0 0 30 2 *", "is never due"),
            ("61 * * * *", "see docs/schedule.md"),
            ("@often", "see docs/schedule.md"),
        ] {
            let error = Timetable::new(line, Tz::UTC).unwrap_err().to_string();
            assert!(error.contains(says), "{line}: {error}");
        }
        for line in ["0 0 */2 * ?", "0 0 * * 1-5", "0 4 L * *", "@daily"] {
            assert!(Timetable::new(line, Tz::UTC).is_ok(), "{line}");
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
}
