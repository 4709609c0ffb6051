//! What units say, word by word.

use super::*;
use crate::domain::{CatchUp, Overlap};
use crate::schedule::{Timetable, zone};

fn entry(line: &str, place: &str) -> Entry {
    Entry {
        name: "nightly".into(),
        timetable: Timetable::new(line, zone(place).unwrap()).unwrap(),
        stages: vec![vec!["collect".into()]],
        catch_up: CatchUp::One,
        overlap: Overlap::Skip,
        timeout: None,
        jitter: std::time::Duration::ZERO,
    }
}

#[test]
fn a_cron_line_is_put_into_the_words_of_systemd() {
    for (line, calendar) in [
        (
            "*/15 * * * *",
            &["*-*-* *:00,15,30,45:00 Europe/Berlin"][..],
        ),
        ("30 3 * * *", &["*-*-* 03:30:00 Europe/Berlin"]),
        ("* * * * *", &["*-*-* *:*:00 Europe/Berlin"]),
        (
            "0 8-10 * * MON-FRI",
            &["Mon,Tue,Wed,Thu,Fri *-*-* 08,09,10:00:00 Europe/Berlin"],
        ),
        ("0 4 * * 7", &["Sun *-*-* 04:00:00 Europe/Berlin"]),
        ("0 4 1 */6 *", &["*-01,07-01 04:00:00 Europe/Berlin"]),
        (
            "0 12 13 * FRI",
            &[
                "*-*-13 12:00:00 Europe/Berlin",
                "Fri *-*-* 12:00:00 Europe/Berlin",
            ],
        ),
        ("0 12 L * *", &["*-*-* *:*:00"]),
        ("0 12 * * FRI#2", &["*-*-* *:*:00"]),
        ("@daily", &["*-*-* 00:00:00 Europe/Berlin"]),
    ] {
        assert_eq!(
            calendar_lines(&entry(line, "Europe/Berlin")),
            calendar,
            "{line}"
        );
    }
}

#[test]
fn a_cron_line_is_put_into_what_kubernetes_reads() {
    let place = Place {
        program: "/usr/bin/topicmill".into(),
        global: Vec::new(),
        pipeline: None,
        folder: "/data".into(),
        user: None,
        env_file: None,
        image: "topicmill:1".into(),
    };
    for (line, schedule) in [
        ("*/15 * * * *", "*/15 * * * *"),
        ("30 3,15 * * *", "30 3,15 * * *"),
        ("0 4 * * 7", "0 4 * * 0"),
        ("0 4 * JAN,JUL MON-FRI", "0 4 * 1,7 1,2,3,4,5"),
        ("0 12 13 * FRI", "0 12 13 * 5"),
        ("0 12 L * *", "* * * * *"),
    ] {
        let text = cron_job(&entry(line, "UTC"), &place);
        assert!(
            text.contains(&format!("  schedule: \"{schedule}\"\n")),
            "{line}\n{text}"
        );
    }
}

#[test]
fn words_stay_what_they_are() {
    assert_eq!(systemd_word("/usr/bin/topicmill"), "/usr/bin/topicmill");
    assert_eq!(
        systemd_word("/my \"own\" 5%$x\\"),
        r#""/my \"own\" 5%%$$x\\""#
    );
    assert_eq!(systemd_word(""), "\"\"");
    assert_eq!(shell_word("it's"), r"'it'\''s'");
    assert_eq!(shell_word("a b"), "'a b'");
}
