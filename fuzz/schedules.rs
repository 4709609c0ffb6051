//! When a cron line is due.

use std::str::FromStr;

use chrono::{DateTime, TimeZone, Utc};
use chrono_tz::Tz;
use croner::Cron;

/// Longer lines are none.
const LONGEST: usize = 256;

/// The first byte picks a zone, the rest is a line of cron. Times that are due come one after another, and a line that
/// never fires says so instead of searching.
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
    let Ok(cron) = Cron::from_str(line) else {
        return;
    };
    // Around both changes of the clock, a leap day, and the end of a year.
    for start in [1_774_745_000, 1_792_892_000, 1_835_300_000, 1_798_675_200] {
        let start: DateTime<Utc> = Utc.timestamp_opt(start, 0).unwrap();
        let mut last = start.with_timezone(&zone);
        for _ in 0..4 {
            let Ok(next) = cron.find_next_occurrence(&last, false) else {
                break;
            };
            assert!(next > last, "{next} does not come after {last}");
            last = next;
        }
    }
}
