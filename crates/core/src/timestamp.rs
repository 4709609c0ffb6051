//! Defines and parses points in time, and how far clocks may be wrong.

use chrono::{DateTime, NaiveDate, NaiveDateTime, SubsecRound, TimeDelta, Utc};
use serde::{Deserialize, Serialize};

/// A point in time in whole seconds UTC.
///
/// `SQLite` stores times as text. Text sorts by time only if all times have the same number of digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(from = "DateTime<Utc>", into = "DateTime<Utc>")]
pub struct Timestamp(DateTime<Utc>);

impl Timestamp {
    /// The first second of 1970.
    pub const EPOCH: Self = Self(DateTime::UNIX_EPOCH);

    /// [`LATEST`](Self::LATEST) in seconds since 1970.
    pub const LATEST_SECS: i64 = 253_402_300_799;

    /// The last second of the year 9999: the latest time that both databases can store, with years of four digits.
    pub const LATEST: Self =
        Self(DateTime::from_timestamp(Self::LATEST_SECS, 0).expect("chrono has later years"));

    /// Converts seconds since 1970; returns `None` outside chrono's range.
    pub fn from_epoch_secs(secs: i64) -> Option<Self> {
        DateTime::from_timestamp(secs, 0).map(Self)
    }

    /// Returns the chrono value, whose fraction of a second is always zero.
    pub fn as_datetime(self) -> DateTime<Utc> {
        self.0
    }
}

impl From<DateTime<Utc>> for Timestamp {
    fn from(time: DateTime<Utc>) -> Self {
        Self(time.trunc_subsecs(0))
    }
}

impl From<Timestamp> for DateTime<Utc> {
    fn from(time: Timestamp) -> Self {
        time.0
    }
}

/// Parses a date or a time: ISO 8601 with or without seconds and zone, the form of email headers, or that of C's
/// `asctime`. Returns the time, and true if the text has a zone; without one, the time is in UTC.
///
/// ```
/// use topicmill_core::parse_time;
///
/// let (time, has_zone) = parse_time("2023-01-15 09:30+0100").unwrap();
/// assert_eq!((time.to_rfc3339().as_str(), has_zone), ("2023-01-15T08:30:00+00:00", true));
/// ```
pub fn parse_time(text: &str) -> Option<(DateTime<Utc>, bool)> {
    let text = text.trim();
    if let Ok(time) = DateTime::parse_from_rfc2822(text) {
        return Some((time.to_utc(), true));
    }
    let zone = ["Z", "z", " UTC", " GMT"]
        .into_iter()
        .find(|zone| text.ends_with(zone));
    let local = text.strip_suffix(zone.unwrap_or_default())?.trim_end();
    // A date with slashes is unambiguous only if the year comes first.
    let is_year_first = local.bytes().take(4).all(|byte| byte.is_ascii_digit());
    let local = if is_year_first {
        local.replace('/', "-").replacen([' ', 't'], "T", 1)
    } else {
        local.to_owned()
    };
    let with_offset = |format| DateTime::parse_from_str(&local, format).ok();
    if zone.is_none()
        && let Some(time) =
            with_offset("%Y-%m-%dT%H:%M:%S%.f%#z").or_else(|| with_offset("%Y-%m-%dT%H:%M%#z"))
    {
        return Some((time.to_utc(), true));
    }
    let time = [
        "%Y-%m-%dT%H:%M:%S%.f",
        "%Y-%m-%dT%H:%M",
        "%a %b %d %H:%M:%S %Y",
    ]
    .into_iter()
    .find_map(|format| NaiveDateTime::parse_from_str(&local, format).ok())
    .or_else(|| {
        NaiveDate::parse_from_str(&local, "%Y-%m-%d")
            .ok()?
            .and_hms_opt(0, 0, 0)
    })?;
    Some((time.and_utc(), zone.is_some()))
}

/// Age of a post when Arctic Shift and the makers of the dumps since November 2023 read it again.
pub const SECOND_READING: TimeDelta = TimeDelta::hours(36);
/// The largest accepted clock skew between machines; a time further in the future is treated as wrong.
pub const MAX_CLOCK_SKEW: TimeDelta = TimeDelta::minutes(5);

/// The largest backward clock step that the scheduler waits out.
///
/// A larger step back means that the clock was wrong before. Therefore a scheduled run whose due time is further ahead
/// than this was planned by a wrong clock.
pub const MAX_CLOCK_SETBACK: TimeDelta = TimeDelta::days(1);
