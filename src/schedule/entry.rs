//! One `[[schedule]]` of a pipeline file: plain values, each of which was checked when it was read.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use chrono::TimeDelta;
use sha2::{Digest, Sha256};

use super::timetable::Timetable;
use crate::domain::{CatchUp, Overlap, Timestamp};

/// Names go into unit files, labels of Kubernetes and file names, all of which take these.
const LONGEST_NAME: usize = 40;
/// Longest timeout and jitter: what takes longer is no slot any more.
const LONGEST: Duration = Duration::from_hours(24 * 31);

/// The commands that a slot may run.
pub const STAGES: &[&str] = &[
    "collect", "import", "classify", "run", "purge", "report", "export", "db",
];

/// What runs when.
#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    /// By which its slots are known.
    pub name: String,
    /// When it is due.
    pub timetable: Timetable,
    /// Command lines, each without the program's name, run one after another.
    pub stages: Vec<Vec<String>>,
    /// What becomes of slots that were missed.
    pub catch_up: CatchUp,
    /// What becomes of a slot while the one before it runs.
    pub overlap: Overlap,
    /// How long a slot may take.
    pub timeout: Option<Duration>,
    /// How much later than it is due a slot starts at most.
    pub jitter: Duration,
}

impl Entry {
    /// When a slot starts: a while after it is due that is always the same for this name and time, so that machines
    /// agree on it, and different ones for different names.
    pub fn start_of(&self, due: Timestamp) -> Timestamp {
        let most = self.jitter.as_secs();
        let hash = Sha256::new()
            .chain_update(&self.name)
            .chain_update(due.as_datetime().timestamp().to_be_bytes())
            .finalize();
        let number = hash[..8]
            .iter()
            .fold(0_u64, |number, byte| number << 8 | u64::from(*byte));
        let wait = TimeDelta::seconds((number % (most + 1)).cast_signed());
        (due.as_datetime() + wait).into()
    }
}

/// Whether a name may be given to a schedule; else what is wrong with it.
///
/// # Errors
/// What to write instead.
pub fn check_name(name: &str) -> Result<(), String> {
    let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    let good = name.starts_with(|c: char| c.is_ascii_lowercase())
        && !name.ends_with('-')
        && name.chars().all(fits)
        && name.len() <= LONGEST_NAME;
    if good {
        return Ok(());
    }
    Err(format!(
        "write small letters, digits and `-`, a letter first, at most {LONGEST_NAME} of them, as in `quarter-hourly`"
    ))
}

/// A time span as people write it: `90s`, `30m`, `2h`, `1d`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span(pub Duration);

impl FromStr for Span {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("`{text}` is no time span: write it as in 90s, 30m, 2h or 1d");
        let (number, unit) = text
            .char_indices()
            .last()
            .map(|(last, _)| text.split_at(last))
            .ok_or_else(wrong)?;
        let secs = match unit {
            "s" => 1,
            "m" => 60,
            "h" => 3_600,
            "d" => 86_400,
            _ => return Err(wrong()),
        };
        let all_digits = number.bytes().all(|byte| byte.is_ascii_digit());
        let number: u64 = number
            .parse()
            .ok()
            .filter(|_| all_digits)
            .ok_or_else(wrong)?;
        let span = Duration::from_secs(number.saturating_mul(secs));
        if span > LONGEST {
            return Err(format!("`{text}` is longer than 31 days: write less"));
        }
        Ok(Self(span))
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let secs = self.0.as_secs();
        match secs {
            _ if secs > 0 && secs.is_multiple_of(86_400) => write!(f, "{} d", secs / 86_400),
            _ if secs > 0 && secs.is_multiple_of(3_600) => write!(f, "{} h", secs / 3_600),
            _ if secs > 0 && secs.is_multiple_of(60) => write!(f, "{} min", secs / 60),
            _ => write!(f, "{secs} s"),
        }
    }
}

/// A command line as words: separated by spaces, and held together by quotes.
///
/// # Errors
/// A quote without its end, or nothing at all.
pub fn words(line: &str) -> Result<Vec<String>, String> {
    let mut words = Vec::new();
    let (mut word, mut quote): (Option<String>, Option<char>) = (None, None);
    for c in line.chars() {
        match quote {
            Some(end) if c == end => quote = None,
            None if c == '\'' || c == '"' => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            None if c.is_whitespace() => words.extend(word.take()),
            _ => word.get_or_insert_default().push(c),
        }
    }
    if quote.is_some() {
        return Err("it has a quote without its end".to_owned());
    }
    words.extend(word);
    if words.is_empty() {
        return Err("it is empty".to_owned());
    }
    Ok(words)
}

#[cfg(test)]
mod tests {
    use super::*;
    use chrono_tz::Tz;

    #[test]
    fn spans_are_read_and_shown() {
        for (text, secs, shown) in [
            ("90s", 90, "90 s"),
            ("30m", 1_800, "30 min"),
            ("2h", 7_200, "2 h"),
            ("1d", 86_400, "1 d"),
            ("0s", 0, "0 s"),
        ] {
            let Span(span) = text.parse().unwrap();
            assert_eq!(
                (span.as_secs(), Span(span).to_string().as_str()),
                (secs, shown)
            );
        }
        for text in [
            "",
            "s",
            "30",
            "-3m",
            "+3m",
            "3 m",
            "1.5h",
            "9999999999999999999d",
            "32d",
            "5ü",
        ] {
            assert!(text.parse::<Span>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_line_is_split_as_a_shell_does() {
        let split = |line| words(line).unwrap();
        assert_eq!(split(" collect  --limit 5 "), ["collect", "--limit", "5"]);
        assert_eq!(
            split("report 'my report.html'"),
            ["report", "my report.html"]
        );
        assert_eq!(split("a\"b c\"d ''"), ["ab cd", ""]);
        assert!(words("report 'a").is_err());
        assert!(words("  ").is_err());
    }

    #[test]
    fn names_fit_wherever_they_go() {
        for name in ["quarter-hourly", "a", "purge2"] {
            assert_eq!(check_name(name), Ok(()), "{name}");
        }
        for name in [
            "",
            "Nightly",
            "2nd",
            "a b",
            "ü",
            "a_b",
            "a-",
            &"a".repeat(41),
        ] {
            assert!(check_name(name).is_err(), "{name}");
        }
    }

    #[test]
    fn jitter_spreads_slots_and_is_the_same_everywhere() {
        let entry = |name: &str| Entry {
            name: name.to_owned(),
            timetable: Timetable::new("* * * * *", Tz::UTC).unwrap(),
            stages: Vec::new(),
            catch_up: CatchUp::One,
            overlap: Overlap::Skip,
            timeout: None,
            jitter: Duration::from_mins(1),
        };
        let waits = |name: &str| -> Vec<i64> {
            let due = |n: i64| Timestamp::from_epoch_secs(1_700_000_000 + 60 * n).unwrap();
            let wait = |n| {
                let start = entry(name).start_of(due(n)).as_datetime();
                (start - due(n).as_datetime()).num_seconds()
            };
            (0..500).map(wait).collect()
        };
        let one = waits("one");
        assert_eq!(one, waits("one"));
        assert_ne!(one, waits("two"));
        assert!(one.iter().all(|wait| (0..=60).contains(wait)));
        let distinct: std::collections::BTreeSet<_> = one.iter().collect();
        assert_eq!(distinct.len(), 61, "every wait comes up in 500 slots");
        let mut none = entry("one");
        none.jitter = Duration::ZERO;
        let due = Timestamp::from_epoch_secs(1_700_000_000).unwrap();
        assert_eq!(none.start_of(due), due);
    }
}
