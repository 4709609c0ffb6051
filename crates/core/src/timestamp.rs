//! Defines points in time, and how far clocks may be wrong.

use chrono::{DateTime, SubsecRound, TimeDelta, Utc};
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

/// The largest accepted clock skew between machines; a time further in the future is treated as wrong.
pub const MAX_CLOCK_SKEW: TimeDelta = TimeDelta::minutes(5);

/// The largest backward clock step that the scheduler waits out.
///
/// A larger step back means that the clock was wrong before. Therefore a scheduled run whose due time is further ahead
/// than this was planned by a wrong clock.
pub const MAX_CLOCK_SETBACK: TimeDelta = TimeDelta::days(1);
