//! Cron lines against a search that only looks at clocks: minute after minute, what does the zone's clock show?

use std::collections::BTreeSet;

use super::*;

fn utc(text: &str) -> DateTime<Utc> {
    text.parse().unwrap()
}

fn table(line: &str, zone: &str) -> Timetable {
    Timetable::new(line, super::zone(zone).unwrap()).unwrap()
}

/// The due times between two moments, each found from the one before.
fn walked(table: &Timetable, from: DateTime<Utc>, until: DateTime<Utc>) -> Vec<DateTime<Utc>> {
    std::iter::successors(table.after(from), |at| table.after(*at))
        .take_while(|at| *at <= until)
        .collect()
}

/// The same by the rules, from clocks alone; `shows` is what the line asks of hour and minute.
fn looked(
    zone: Tz,
    fixed: bool,
    from: DateTime<Utc>,
    until: DateTime<Utc>,
    shows: impl Fn(u32, u32) -> bool,
) -> Vec<DateTime<Utc>> {
    use chrono::Timelike;
    let minutes = || {
        let first = from - TimeDelta::days(2);
        std::iter::successors(Some(first), |at| Some(*at + TimeDelta::minutes(1)))
            .take_while(|at| *at <= until)
    };
    let mut due = BTreeSet::new();
    let mut seen = BTreeSet::new();
    let mut before: Option<NaiveDateTime> = None;
    for at in minutes() {
        let wall = at.with_timezone(&zone).naive_local();
        // Minutes that the clock passed over since the last one.
        if let Some(before) = before.filter(|_| fixed) {
            let skipped = (1..(wall - before).num_minutes())
                .map(|n| before + TimeDelta::minutes(n))
                .any(|wall| shows(wall.hour(), wall.minute()));
            if skipped {
                due.insert(at);
            }
        }
        before = Some(wall);
        let again = !seen.insert(wall);
        if shows(wall.hour(), wall.minute()) && !(fixed && again) {
            due.insert(at);
        }
    }
    due.into_iter().filter(|at| *at > from).collect()
}

/// Days around which a clock changed, with the change in each zone: half an hour, an hour, two hours, at midnight, a
/// zone that changes its rules for Ramadan, one that left out a day, one that never changes.
const CHANGES: [(&str, &str); 20] = [
    ("Europe/Berlin", "2026-03-29"),
    ("Europe/Berlin", "2026-10-25"),
    ("Europe/London", "2026-03-29"),
    ("America/New_York", "2026-03-08"),
    ("America/New_York", "2026-11-01"),
    ("Australia/Lord_Howe", "2026-04-05"),
    ("Australia/Lord_Howe", "2026-10-04"),
    ("America/Santiago", "2026-04-05"),
    ("America/Santiago", "2026-09-06"),
    ("Africa/Cairo", "2026-04-24"),
    ("Africa/Cairo", "2026-10-30"),
    ("Africa/Casablanca", "2026-02-15"),
    ("Africa/Casablanca", "2026-03-22"),
    ("Antarctica/Troll", "2026-03-29"),
    ("Antarctica/Troll", "2026-10-25"),
    ("Pacific/Apia", "2011-12-30"),
    ("America/Sao_Paulo", "2018-11-04"),
    ("America/Sao_Paulo", "2026-11-01"),
    ("Asia/Kathmandu", "2026-03-29"),
    ("UTC", "2026-03-29"),
];

type Shows = fn(u32, u32) -> bool;
/// Lines with what they ask of a clock.
const LINES: [(&str, bool, Shows); 12] = [
    ("*/15 * * * *", false, |_, m| m.is_multiple_of(15)),
    ("30 * * * *", false, |_, m| m == 30),
    ("0 */2 * * *", false, |h, m| m == 0 && h.is_multiple_of(2)),
    ("*/20 2 * * *", false, |h, m| h == 2 && m.is_multiple_of(20)),
    ("@hourly", false, |_, m| m == 0),
    ("30 2 * * *", true, |h, m| (h, m) == (2, 30)),
    ("30 2,14 * * *", true, |h, m| m == 30 && (h == 2 || h == 14)),
    ("0,30 0-3 * * *", true, |h, m| h <= 3 && (m == 0 || m == 30)),
    ("0 0 * * *", true, |h, m| (h, m) == (0, 0)),
    ("30 23 * * *", true, |h, m| (h, m) == (23, 30)),
    ("15 1 * * *", true, |h, m| (h, m) == (1, 15)),
    ("@daily", true, |h, m| (h, m) == (0, 0)),
];

#[test]
fn each_line_is_due_when_the_clock_says_so_around_every_change() {
    for (name, day) in CHANGES {
        let zone = super::zone(name).unwrap();
        let from = utc(&format!("{day}T00:00:00Z")) - TimeDelta::days(2);
        let until = from + TimeDelta::days(4);
        for (line, fixed, shows) in LINES {
            let table = Timetable::new(line, zone).unwrap();
            let expected = looked(zone, fixed, from, until, shows);
            assert_eq!(walked(&table, from, until), expected, "{line} {name} {day}");
            // From anywhere, not only from one due time to the next.
            for minutes in (0..4 * 24 * 60).step_by(7) {
                let start = from + TimeDelta::minutes(minutes) + TimeDelta::seconds(11);
                let next = expected.iter().find(|at| **at > start);
                if let Some(next) = next {
                    assert_eq!(
                        table.after(start),
                        Some(*next),
                        "{line} {name} from {start}"
                    );
                }
            }
        }
    }
}

#[test]
fn known_nights_of_a_change() {
    let day = |line: &str, zone: &str, day: &str| -> Vec<String> {
        let table = table(line, zone);
        let from = utc(&format!("{day}T00:00:00Z")) - TimeDelta::seconds(1);
        let due = walked(&table, from, from + TimeDelta::days(1));
        let local = |at: &DateTime<Utc>| {
            let local = at.with_timezone(&table.zone());
            local.format("%H:%M%z").to_string()
        };
        due.iter().map(local).collect()
    };
    // Half past two does not exist: as soon as it is past. It exists twice: the first time.
    assert_eq!(
        day("30 2 * * *", "Europe/Berlin", "2026-03-29"),
        ["03:00+0200"]
    );
    assert_eq!(
        day("30 2 * * *", "Europe/Berlin", "2026-10-25"),
        ["02:30+0200"]
    );
    // One minute and two hours are fixed times, too.
    assert_eq!(
        day("30 2,14 * * *", "Europe/Berlin", "2026-10-25"),
        ["02:30+0200", "14:30+0100"]
    );
    // Half an hour is left out on Lord Howe Island, and later repeated.
    assert_eq!(
        day("15 2 * * *", "Australia/Lord_Howe", "2026-10-03"),
        ["02:30+1100"]
    );
    // Midnight does not exist in Cairo in spring.
    assert_eq!(
        day("0 0 * * *", "Africa/Cairo", "2026-04-23"),
        ["01:00+0300"]
    );
    // Each quarter of an hour goes on through both hours.
    assert_eq!(day("*/15 * * * *", "Europe/Berlin", "2026-10-25").len(), 96);
    assert_eq!(day("*/15 * * * *", "Europe/Berlin", "2026-03-29").len(), 96);
}

#[test]
fn days_are_those_of_the_zone() {
    let berlin = table("0 0 1 * *", "Europe/Berlin");
    assert_eq!(
        berlin.after(utc("2026-06-15T00:00:00Z")),
        Some(utc("2026-06-30T22:00:00Z"))
    );
    // A day of the month or a day of the week, as in every cron.
    let both = table("0 12 13 * FRI", "UTC");
    let due = walked(
        &both,
        utc("2026-11-01T00:00:00Z"),
        utc("2026-11-21T00:00:00Z"),
    );
    let days: Vec<String> = due.iter().map(|at| at.format("%d").to_string()).collect();
    assert_eq!(days, ["06", "13", "20"]);
    for (line, next) in [
        ("0 12 * * FRI#L", "2026-11-27T12:00:00Z"),
        ("0 12 * * FRI#2", "2026-11-13T12:00:00Z"),
        ("0 12 L * *", "2026-11-30T12:00:00Z"),
    ] {
        let due = table(line, "UTC").after(utc("2026-11-01T00:00:00Z"));
        assert_eq!(due, Some(utc(next)), "{line}");
    }
    let leap = table("0 0 29 2 *", "UTC");
    assert_eq!(
        leap.after(utc("2096-03-01T00:00:00Z")),
        Some(utc("2104-02-29T00:00:00Z"))
    );
}

#[test]
fn lines_that_cannot_be_meant_are_refused() {
    let error = |line: &str| Timetable::new(line, Tz::UTC).unwrap_err().to_string();
    for (line, says) in [
        ("0 0 30 2 *", "is never due"),
        ("0 0 31 2,4,6,9,11 *", "is never due"),
        ("* * * * * *", "no slot comes more often than once a minute"),
        (
            "*/10 * * * * * 2030",
            "has a field for seconds, or for years",
        ),
        ("*/15 * * *", "has 4 fields: write five"),
        ("", "has 0 fields"),
        ("61 * * * *", "the cron line `61 * * * *`: "),
        ("a b c d e", "the cron line `a b c d e`: "),
        ("*/0 * * * *", "the cron line `*/0 * * * *`: "),
        ("5-1 * * * *", "the cron line `5-1 * * * *`: "),
        ("@reboot", "the cron line `@reboot`: "),
        ("* * * * 9", "the cron line `* * * * 9`: "),
        ("1,,2 * * * *", "`1,,2` has a comma too many"),
        ("0 1,2, * * *", "`1,2,` has a comma too many"),
        ("0 0 ,1 * *", "`,1` has a comma too many"),
        ("*/61 * * * *", "the step of `*/61` is larger"),
        ("0 */25 * * *", "the step of `*/25` is larger"),
        ("0 0 1-31/40 * *", "which has 31 values"),
        ("5,10-20/12 * * * *", "the step of `10-20/12` is larger"),
        ("0 0 * * mon-fri/6", "the step of `mon-fri/6` is larger"),
    ] {
        let said = error(line);
        assert!(said.contains(says), "{line}: {said}");
    }
    // People write these for once an hour, a day, a month.
    for line in [
        "*/60 * * * *",
        "0 */24 * * *",
        "0 0 */31 * *",
        "0-59/30,7 * * * MON-FRI/2",
    ] {
        table(line, "UTC");
    }
}

#[test]
fn a_zone_that_does_not_exist_is_refused_with_the_nearest_names() {
    let error = |name: &str| super::zone(name).unwrap_err().to_string();
    assert_eq!(
        error("Europe/Berlino"),
        "there is no time zone `Europe/Berlino`; did you mean `Europe/Berlin`?"
    );
    assert!(error("europe/berlin").contains("`Europe/Berlin`"));
    assert!(error("New York").contains("`America/New_York`"));
    assert!(error("Mars/Olympus").contains("as in `Europe/Berlin`"));
    assert!(error("").contains("as in `Europe/Berlin`"));
}

#[test]
fn no_line_of_random_words_breaks_anything_and_time_goes_forward() {
    let words = [
        "*", "*/5", "0", "7", "59", "0-3", "5-1", "1,15", "L", "LW", "15W", "31W", "FRI#2",
        "FRI#L", "5L", "MON-FRI", "SUN", "7", "JAN", "2", "?", "*/0", "99", "-1", "1-", "/", ",",
        "1/2", "#", "ü", "+1", "0-59/7",
    ];
    let mut random = fastrand::Rng::with_seed(1);
    let mut good = 0;
    for _ in 0..3_000 {
        // Half of the fields are good ones, so that lines come through.
        let mut word = || {
            let is_good = random.bool();
            words[random.usize(..if is_good { 2 } else { words.len() })]
        };
        let line = [word(), word(), word(), word(), word()].join(" ");
        let Ok(table) = Timetable::new(&line, Tz::Europe__Berlin) else {
            continue;
        };
        good += 1;
        let mut at = utc("2026-03-28T00:00:00Z");
        for _ in 0..20 {
            let Some(next) = table.after(at) else { break };
            assert!(next > at, "{line} at {at}");
            at = next;
        }
    }
    assert!(good > 100, "{good}");
}
