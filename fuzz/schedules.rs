//! When a cron line is due.

use chrono::{DateTime, TimeZone, Utc};
use chrono_tz::Tz;
use topicmill::schedule::Timetable;

/// Longer lines are none.
const LONGEST: usize = 256;

/// The first byte picks a zone, the rest is a line of cron. Times that are due come one after another, each at a full
/// minute, and a line that is never due is refused.
pub fn cron(bytes: &[u8]) {
    let Some((first, rest)) = bytes.split_first() else {
        return;
    };
    let zones = [
        Tz::UTC,
        Tz::Europe__Berlin,
        Tz::America__St_Johns,
        Tz::Australia__Lord_Howe,
        Tz::Africa__Casablanca,
        Tz::Pacific__Apia,
    ];
    let zone = zones[usize::from(*first) % zones.len()];
    let Ok(line) = std::str::from_utf8(rest) else {
        return;
    };
    if line.len() > LONGEST {
        return;
    }
    let Ok(table) = Timetable::new(line, zone) else {
        return;
    };
    // Around both changes of the clock, a leap day, and the end of a year.
    for start in [1_774_745_000, 1_792_892_000, 1_835_300_000, 1_798_675_200] {
        let mut last: DateTime<Utc> = Utc.timestamp_opt(start, 0).unwrap();
        for _ in 0..4 {
            let next = table
                .after(last)
                .expect("a line that is never due is refused");
            assert!(next > last, "{next} does not come after {last}");
            assert_eq!(next.timestamp() % 60, 0, "{next}");
            last = next;
        }
    }
}
