//! How long something lasted, for people.

use chrono::TimeDelta;

/// A stretch of time in its largest unit: `40 s`, `12 min`, `3 h`, `2 days`.
pub fn ago(time: TimeDelta) -> String {
    let seconds = time.num_seconds().max(0);
    match seconds {
        0..=89 => format!("{seconds} s"),
        90..=5_399 => format!("{} min", (seconds + 30) / 60),
        5_400..=172_799 => format!("{} h", (seconds + 1_800) / 3_600),
        _ => format!("{} days", (seconds + 43_200) / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stretch_of_time_is_told_in_its_largest_unit() {
        for (seconds, told) in [
            (-5, "0 s"),
            (0, "0 s"),
            (89, "89 s"),
            (90, "2 min"),
            (3_600, "60 min"),
            (5_400, "2 h"),
            (86_400, "24 h"),
            (172_800, "2 days"),
            (10_000_000, "116 days"),
        ] {
            assert_eq!(ago(TimeDelta::seconds(seconds)), told);
        }
    }
}
