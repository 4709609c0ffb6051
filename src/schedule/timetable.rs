//! When a cron line is due: text and zone go in, moments come out.
//!
//! The zone's clock goes forward in spring and back in autumn, so that a time of day may not exist, or exist twice.
//! This file follows the rules of Vixie's cron (`man 8 cron`, Debian):
//!
//! - A line with fixed times (neither minute nor hour has a `*`) is due once for each of its times of day. A time that
//!   does not exist is due at the first moment after the gap; of a time that exists twice, the first one counts.
//! - A line with `*` in minute or hour is due whenever the clock shows such a time: not within a gap, and in both of
//!   two equal hours.
//!
//! croner 4.0.3 reads the lines and finds the times. By its own rules only a line with one minute and one hour has fixed
//! times: `30 2,14 * * *` would be left out in spring and due twice in autumn. So lines with fixed times are searched
//! on the wall clock, without a zone, and the zone is applied here.

use std::fmt;

use chrono::{DateTime, LocalResult, NaiveDateTime, TimeDelta, TimeZone, Utc};
use chrono_tz::{TZ_VARIANTS, Tz};
use croner::Cron;
use croner::errors::CronError;
use croner::parser::{CronParser, Seconds, Year};

/// Longest gap of a clock: Samoa left out the whole 30th of December 2011.
const LONGEST_GAP_MINUTES: u32 = 36 * 60;
/// How many values a field takes: minute, hour, day of month, month, day of week.
const VALUES: [u32; 5] = [60, 24, 31, 12, 7];
/// Zones that a message names for one that does not exist.
const MOST_NEAREST: usize = 3;
/// Letters that a name of a zone may have wrong, to be named.
const FAR: usize = 4;

/// Why a line or a zone means nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TimetableError {
    /// Not five fields.
    #[error(
        "the cron line `{line}` has {found} fields: write five, for minute, hour, day of month, month and day of week, \
         as in `*/15 * * * *`"
    )]
    Fields {
        /// As given.
        line: String,
        /// How many there are.
        found: usize,
    },
    /// Seconds are too fine.
    #[error(
        "the cron line `{0}` has a field for seconds, or for years: write five fields, for minute, hour, day of month, \
         month and day of week; no slot comes more often than once a minute"
    )]
    Seconds(String),
    /// A field cannot be read.
    #[error("the cron line `{line}`: {said}; see docs/scheduling.md for what the five fields take")]
    Line {
        /// As given.
        line: String,
        /// What the parser said.
        said: String,
    },
    /// It names a day that there never is.
    #[error(
        "the cron line `{0}` is never due: no year has such a day; correct its days and months"
    )]
    Never(String),
    /// No such zone.
    #[error("there is no time zone `{found}`; {nearest}")]
    Zone {
        /// As given.
        found: String,
        /// Those that may be meant.
        nearest: String,
    },
}

/// A cron line in a zone.
#[derive(Clone)]
pub struct Timetable {
    line: String,
    zone: Tz,
    cron: Cron,
    fixed: bool,
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
        let line = line.split_whitespace().collect::<Vec<_>>().join(" ");
        if !line.starts_with('@') {
            match line.split_whitespace().count() {
                5 => {}
                6 | 7 => return Err(TimetableError::Seconds(line)),
                found => return Err(TimetableError::Fields { line, found }),
            }
        }
        let parser = CronParser::builder()
            .seconds(Seconds::Disallowed)
            .year(Year::Disallowed)
            .build();
        let cron = parser.parse(&line).map_err(|error| TimetableError::Line {
            line: line.clone(),
            said: said(&error),
        })?;
        if let Some(said) = vain(&line, cron.as_str()) {
            return Err(TimetableError::Line { line, said });
        }
        let fields: Vec<&str> = line.split_whitespace().collect();
        let fixed = match fields[..] {
            [minute, hour, ..] => !minute.contains(['*', '?']) && !hour.contains(['*', '?']),
            // `@hourly` is the only one of these words that does not name an hour.
            _ => !line.eq_ignore_ascii_case("@hourly"),
        };
        let timetable = Self {
            line,
            zone,
            cron,
            fixed,
        };
        // Every day that there ever is comes in the 400 years after which the calendar repeats itself.
        if timetable.after(DateTime::UNIX_EPOCH).is_none() {
            return Err(TimetableError::Never(timetable.line));
        }
        Ok(timetable)
    }

    /// The line, its fields separated by one space.
    pub fn line(&self) -> &str {
        &self.line
    }

    /// The zone.
    pub fn zone(&self) -> Tz {
        self.zone
    }

    /// Its fields as croner reads them.
    pub fn pattern(&self) -> &croner::CronPattern {
        &self.cron.pattern
    }

    /// The first due time after a moment; none if the calendar ends before.
    pub fn after(&self, moment: DateTime<Utc>) -> Option<DateTime<Utc>> {
        if self.fixed {
            return self.fixed_after(moment);
        }
        let local = moment.with_timezone(&self.zone);
        let next = self.cron.find_next_occurrence(&local, false).ok()?;
        Some(next.with_timezone(&Utc))
    }

    fn fixed_after(&self, moment: DateTime<Utc>) -> Option<DateTime<Utc>> {
        let mut wall = moment.with_timezone(&self.zone).naive_local();
        loop {
            wall = self.cron.find_next_occurrence(&wall, false).ok()?;
            // What the clock showed before, or shows for the second time, is behind us.
            if let Some(due) = self.moment_of(wall)
                && due > moment
            {
                return Some(due);
            }
        }
    }

    /// When a wall clock shows a time for the first time, or has passed it.
    fn moment_of(&self, wall: NaiveDateTime) -> Option<DateTime<Utc>> {
        let minutes = (0..=LONGEST_GAP_MINUTES).map(|n| TimeDelta::minutes(n.into()));
        minutes
            .filter_map(|n| wall.checked_add_signed(n))
            .find_map(|wall| match self.zone.from_local_datetime(&wall) {
                LocalResult::Single(one) | LocalResult::Ambiguous(one, _) => Some(one),
                LocalResult::None => None,
            })
            .map(|found| found.with_timezone(&Utc))
    }
}

/// What croner and other crons pass over in silence, though nobody means it: a place in a list without a value, and a step
/// beyond the end of its range. `read` is the line with numbers in place of names.
fn vain(line: &str, read: &str) -> Option<String> {
    let fields = line.split_whitespace().zip(read.split_whitespace());
    for ((field, read), values) in fields.zip(VALUES) {
        for (part, read) in field.split(',').zip(read.split(',')) {
            if part.is_empty() {
                return Some(format!("`{field}` has a comma too many"));
            }
            let Some((range, step)) = read.split_once('/') else {
                continue;
            };
            // `*` takes each value of the field.
            let bounds = range
                .split_once('-')
                .and_then(|(from, to)| Some((from.parse::<u32>().ok()?, to.parse::<u32>().ok()?)));
            let values = bounds.map_or(values, |(from, to)| to.saturating_sub(from) + 1);
            // A step may have `#2` behind it.
            let step = step.split('#').next();
            let step = step.and_then(|step| step.parse::<u32>().ok());
            if step.is_some_and(|step| step > values) {
                return Some(format!(
                    "the step of `{part}` is larger than its range, which has {values} values: only the first is ever due"
                ));
            }
        }
    }
    None
}

/// What croner says, without its own words for itself.
fn said(error: &CronError) -> String {
    let text = match error {
        CronError::ComponentError(said)
        | CronError::InvalidPattern(said)
        | CronError::IllegalCharacters(said) => said.clone(),
        other => other.to_string(),
    };
    text.trim_end_matches('.').replace("CronPattern", "it")
}

/// Reads the name of a zone, such as `Europe/Berlin`.
///
/// # Errors
/// [`TimetableError::Zone`], with the names that may be meant.
pub fn zone(name: &str) -> Result<Tz, TimetableError> {
    name.parse().map_err(|_| TimetableError::Zone {
        found: name.chars().take(60).collect(),
        nearest: nearest(name),
    })
}

/// The zones that a name may mean.
fn nearest(name: &str) -> String {
    let word = name.to_lowercase().replace([' ', '-'], "_");
    let distance = |zone: &Tz| {
        let zone = zone.name().to_lowercase();
        let city = zone.rsplit('/').next().unwrap_or_default().to_owned();
        let wanted = word.rsplit('/').next().unwrap_or_default();
        let of_city = strsim::damerau_levenshtein(wanted, &city);
        of_city.min(strsim::damerau_levenshtein(&word, &zone))
    };
    let mut near: Vec<(usize, &str)> = TZ_VARIANTS
        .iter()
        .map(|zone| (distance(zone), zone.name()))
        .filter(|(distance, _)| *distance <= FAR.min(word.len() / 2))
        .collect();
    near.sort_unstable();
    let best = near.first().map_or(0, |(distance, _)| *distance);
    near.retain(|(distance, _)| *distance <= best + 1);
    let names: Vec<String> = near
        .into_iter()
        .take(MOST_NEAREST)
        .map(|(_, name)| format!("`{name}`"))
        .collect();
    if names.is_empty() {
        "give the name of a region and a city, as in `Europe/Berlin`, or `UTC`".to_owned()
    } else {
        format!("did you mean {}?", names.join(", "))
    }
}

#[cfg(test)]
mod tests;
