//! Formats and parses user-facing durations.

use chrono::TimeDelta;

/// Formats a duration in one unit: `40 s`, `12 min`, `3 h`, `2 days`. A negative duration is `0 s`.
pub fn format_duration(time: TimeDelta) -> String {
    let seconds = time.num_seconds().max(0);
    match seconds {
        0..=89 => format!("{seconds} s"),
        90..=5_399 => format!("{} min", (seconds + 30) / 60),
        5_400..=172_799 => format!("{} h", (seconds + 1_800) / 3_600),
        _ => format!("{} days", (seconds + 43_200) / 86_400),
    }
}

/// Formats a duration of a setting without rounding it: `90 s`, `150 min`, `3 h`, `2 days`.
pub fn format_setting(time: TimeDelta) -> String {
    let seconds = time.num_seconds();
    let mut units = [("days", 86_400), ("h", 3_600), ("min", 60)].into_iter();
    let (unit, length) = units
        .find(|(_, length)| seconds % length == 0 && seconds > *length)
        .unwrap_or(("s", 1));
    format!("{} {unit}", seconds / length)
}

/// Parses a duration: `90s`, `30m`, `2h`, `1d` or `2w`.
///
/// # Errors
/// A message that names the accepted forms.
pub fn parse_duration(text: &str) -> Result<TimeDelta, String> {
    let read = || {
        let unit = text.chars().last()?;
        let number = text.strip_suffix(unit)?;
        if !number.bytes().all(|byte| byte.is_ascii_digit()) {
            return None;
        }
        let number = number.parse().ok()?;
        match unit {
            's' => TimeDelta::try_seconds(number),
            'm' => TimeDelta::try_minutes(number),
            'h' => TimeDelta::try_hours(number),
            'd' => TimeDelta::try_days(number),
            'w' => TimeDelta::try_weeks(number),
            _ => None,
        }
    };
    read().ok_or_else(|| {
        format!("`{text}` is not a duration: write `90s`, `30m`, `2h`, `1d` or `2w`")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_parsed_and_formatted() {
        for (seconds, formatted) in [
            (-5, "0 s"),
            (89, "89 s"),
            (90, "2 min"),
            (3_600, "60 min"),
            (5_400, "2 h"),
            (172_800, "2 days"),
        ] {
            assert_eq!(format_duration(TimeDelta::seconds(seconds)), formatted);
        }
        for (seconds, formatted) in [(90, "90 s"), (9_000, "150 min"), (86_400, "24 h")] {
            assert_eq!(format_setting(TimeDelta::seconds(seconds)), formatted);
        }
        for (text, seconds) in [("90s", 90), ("30m", 1_800), ("2h", 7_200), ("1w", 604_800)] {
            assert_eq!(parse_duration(text), Ok(TimeDelta::seconds(seconds)));
        }
        for text in [
            "",
            "s",
            "30",
            "-3m",
            "3 m",
            "1.5h",
            "99999999999999d",
            "5ü",
            "２h",
        ] {
            assert!(parse_duration(text).is_err(), "{text}");
        }
    }
}
