//! Defines and parses points in time, and how far clocks may be wrong.

use chrono::{DateTime, FixedOffset, NaiveDate, NaiveDateTime, SubsecRound, TimeDelta, Utc};
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

/// A time that was parsed from text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ParsedTime {
    /// The time, in UTC if the text has no zone.
    pub time: DateTime<Utc>,
    /// True if the text has a zone.
    pub has_zone: bool,
}

/// Parses a date or a time: ISO 8601 with or without seconds and zone, the form of email headers, or that of C's
/// `asctime`.
///
/// ```
/// use topicmill_core::parse_time;
///
/// let parsed = parse_time("2023-01-15 09:30+0100").unwrap();
/// assert_eq!(parsed.time.to_rfc3339(), "2023-01-15T08:30:00+00:00");
/// assert!(parsed.has_zone);
/// ```
pub fn parse_time(text: &str) -> Option<ParsedTime> {
    let text = text.trim();
    let zoned = |time: DateTime<FixedOffset>| {
        let (time, has_zone) = (time.to_utc(), true);
        ParsedTime { time, has_zone }
    };
    if let Ok(time) = DateTime::parse_from_rfc2822(text) {
        return Some(zoned(time));
    }
    let zone = ["Z", "z", " UTC", " GMT"]
        .into_iter()
        .find(|zone| text.ends_with(zone));
    let local = text.strip_suffix(zone.unwrap_or_default())?.trim_end();
    let local = with_iso_separators(local);
    if zone.is_none()
        && let Some(time) = parse_with_offset(&local)
    {
        return Some(zoned(time));
    }
    let (time, has_zone) = (parse_without_offset(&local)?.and_utc(), zone.is_some());
    Some(ParsedTime { time, has_zone })
}

/// Writes `2023/01/15 09:30` as `2023-01-15T09:30`. Other dates stay as they are, because a date with slashes is
/// unambiguous only if the year comes first.
fn with_iso_separators(text: &str) -> String {
    if text.bytes().take(4).all(|byte| byte.is_ascii_digit()) {
        text.replace('/', "-").replacen([' ', 't'], "T", 1)
    } else {
        text.to_owned()
    }
}

fn parse_with_offset(text: &str) -> Option<DateTime<FixedOffset>> {
    let parse = |format| DateTime::parse_from_str(text, format).ok();
    parse("%Y-%m-%dT%H:%M:%S%.f%#z").or_else(|| parse("%Y-%m-%dT%H:%M%#z"))
}

/// Parses a time, or the start of a day.
fn parse_without_offset(text: &str) -> Option<NaiveDateTime> {
    let formats = [
        "%Y-%m-%dT%H:%M:%S%.f",
        "%Y-%m-%dT%H:%M",
        "%a %b %d %H:%M:%S %Y",
    ];
    let parse = |format| NaiveDateTime::parse_from_str(text, format).ok();
    formats.into_iter().find_map(parse).or_else(|| {
        let day = NaiveDate::parse_from_str(text, "%Y-%m-%d").ok()?;
        day.and_hms_opt(0, 0, 0)
    })
}

/// Age of a post when Arctic Shift and the makers of the dumps since November 2023 read it again.
pub const SECOND_READING: TimeDelta = TimeDelta::hours(36);

/// The largest accepted clock skew between machines; a time further in the future is treated as wrong. A clock that is
/// not synchronised drifts by a second or two a day, so it takes months to be wrong by more.
pub const MAX_CLOCK_SKEW: TimeDelta = TimeDelta::minutes(5);

/// The largest backward clock step that the scheduler waits out, longer than any time zone is from UTC.
///
/// A larger step back means that the clock was wrong before. Therefore a scheduled run whose due time is further ahead
/// than this was planned by a wrong clock.
pub const MAX_CLOCK_SETBACK: TimeDelta = TimeDelta::days(1);
