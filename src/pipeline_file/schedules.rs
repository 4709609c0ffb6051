//! Parses the `[[schedule]]` entries of a pipeline file.

use std::collections::HashMap;

use chrono_tz::{TZ_VARIANTS, Tz};

use super::mistakes::{Findings, nearest, quoted};
use super::section::{Located, Section};
use crate::schedule::{Entry, STAGES, Timetable, check_name, words};
use topicmill_core::{CatchUp, Overlap, parse_duration};

/// Keys of a schedule.
pub(super) const SCHEDULE_KEYS: &[&str] = &[
    "name", "cron", "timezone", "stages", "catch_up", "overlap", "timeout",
];

/// Reads all schedules.
pub(super) fn read(file: Section, found: &mut Findings) -> Vec<Entry> {
    if file.get("schedule").is_none() {
        return Vec::new();
    }
    let Some(list) = file.list("schedule", found) else {
        return Vec::new();
    };
    let mut entries = Vec::new();
    let mut places: HashMap<String, usize> = HashMap::new();
    for item in list.value {
        let at = item.span().start;
        let Some(table) = item.get_ref().as_table() else {
            found.wrong(at, "a schedule is a table: write [[schedule]]");
            continue;
        };
        let section = Section::new(table, at);
        let Some(entry) = read_entry(section, found) else {
            continue;
        };
        if places.insert(entry.name.clone(), at).is_some() {
            let name = quoted(&entry.name);
            found.wrong(
                at,
                format!("the schedule {name} is listed twice: change the `name` of one"),
            );
        }
        entries.push(entry);
    }
    entries
}

fn read_entry(section: Section, found: &mut Findings) -> Option<Entry> {
    section.unknown_keys(SCHEDULE_KEYS, None, found);
    let name = read_name(section, found);
    let timetable = read_timetable(section, found);
    let stages = read_stages(section, found);
    let catch_up = section.word::<CatchUp>("catch_up", found);
    let overlap = section.word::<Overlap>("overlap", found);
    let timeout = section
        .text("timeout", found)
        .and_then(|Located { at, value }| {
            let read = parse_duration(&value).map(|length| length.to_std().unwrap_or_default());
            let read = read.and_then(|length| {
                let zero = "it is 0: write a length of time as in 30m, or leave the key out";
                (!length.is_zero()).then_some(length).ok_or(zero.to_owned())
            });
            read.map_err(|why| found.wrong(at, format!("`timeout`: {why}")))
                .ok()
        });
    Some(Entry {
        name: name?,
        timetable: timetable?,
        stages,
        catch_up: catch_up.map_or(CatchUp::One, |word| word.value),
        overlap: overlap.map_or(Overlap::Skip, |word| word.value),
        timeout,
    })
}

fn read_name(section: Section, found: &mut Findings) -> Option<String> {
    if section.get("name").is_none() {
        found.missing(
            section.at,
            "the schedule has no `name`: add one, as in name = \"quarter-hourly\"",
        );
    }
    let Located { at, value } = section.text("name", found)?;
    match check_name(&value) {
        Ok(()) => Some(value),
        Err(wanted) => {
            found.wrong(
                at,
                format!("{} is not a valid schedule name: {wanted}", quoted(&value)),
            );
            None
        }
    }
}

fn read_timetable(section: Section, found: &mut Findings) -> Option<Timetable> {
    let zone = match section.text("timezone", found) {
        None if section.get("timezone").is_some() => return None,
        None => Tz::UTC,
        Some(Located { at, value }) => {
            let wrong = |_| found.wrong(at, unknown_zone(&value));
            value.parse().map_err(wrong).ok()?
        }
    };
    if section.get("cron").is_none() {
        found.missing(
            section.at,
            "the schedule has no `cron` line: add one, as in cron = \"*/15 * * * *\"",
        );
    }
    let Located { at, value } = section.text("cron", found)?;
    let wrong = |error| found.wrong(at, format!("`cron`: {error}"));
    Timetable::new(&value, zone).map_err(wrong).ok()
}

fn unknown_zone(name: &str) -> String {
    let names = TZ_VARIANTS.map(Tz::name);
    let hint = match nearest(name, &names) {
        Some(meant) => format!("did you mean `{meant}`?"),
        None => "use the name of a region and a city, as in `Europe/Berlin`, or `UTC`".to_owned(),
    };
    format!("`timezone`: there is no time zone {}; {hint}", quoted(name))
}

fn read_stages(section: Section, found: &mut Findings) -> Vec<Vec<String>> {
    let lines = section.texts("stages", found);
    let is_empty_list = section.get("stages").is_none_or(|list| {
        list.get_ref()
            .as_array()
            .is_some_and(|list| list.is_empty())
    });
    if is_empty_list {
        found.missing(
            section.at,
            "the schedule has no `stages`: add the commands that it runs, as in stages = [\"collect\", \"classify\"]",
        );
    }
    let mut stages = Vec::with_capacity(lines.len());
    for Located { at, value } in lines {
        let line = quoted(&value);
        let words = match words(&value) {
            Ok(words) => words,
            Err(why) => {
                found.wrong(at, format!("the stage {line}: {why}"));
                continue;
            }
        };
        if !STAGES.contains(&words[0].as_str()) {
            let hint = nearest(&words[0], STAGES)
                .map_or(String::new(), |meant| format!("did you mean `{meant}`? "));
            let all = STAGES.join(", ");
            found.wrong(
                at,
                format!(
                    "the stage {line} does not begin with a command that a schedule runs: {hint}the commands are {all}"
                ),
            );
        }
        stages.push(words);
    }
    stages
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use crate::pipeline_file::Pipeline;
    use topicmill_core::{CatchUp, Listing, Overlap};

    fn parse(schedules: &str) -> Result<Pipeline, String> {
        let text = format!("labels = [\"climate change\", \"gaming\"]\n{schedules}");
        Pipeline::parse(&text, Path::new("a.toml"), Listing::Hot, 10)
            .map_err(|error| error.to_string())
    }

    #[test]
    fn schedules_have_defaults() {
        let file = parse(
            "[[schedule]]\nname = \"often\"\ncron = \"*/15  * * * *\"\nstages = [\"collect --source arctic-shift\"]\n\
             [[schedule]]\nname = \"nightly\"\ncron = \"30 3 * * *\"\ntimezone = \"Europe/Berlin\"\n\
             stages = \"classify\"\ncatch_up = \"all\"\noverlap = \"queue\"\ntimeout = \"2h\"\n",
        )
        .unwrap();
        let [often, nightly] = &file.schedules[..] else {
            panic!("two schedules")
        };
        assert_eq!(often.timetable.to_string(), "*/15 * * * * UTC");
        assert_eq!(
            (often.catch_up, often.overlap),
            (CatchUp::One, Overlap::Skip)
        );
        assert_eq!(often.timeout, None);
        assert_eq!(often.stages, [["collect", "--source", "arctic-shift"]]);
        assert_eq!(nightly.timetable.to_string(), "30 3 * * * Europe/Berlin");
        assert_eq!(
            (nightly.catch_up, nightly.overlap),
            (CatchUp::All, Overlap::Queue)
        );
        assert_eq!(
            nightly.timeout.map(|timeout| timeout.as_secs()),
            Some(7_200)
        );
    }

    #[test]
    fn mistakes_in_schedules_are_reported_with_their_position() {
        let good = "name = \"a\"\ncron = \"* * * * *\"\nstages = [\"collect\"]\n";
        let (name, cron, stages) = ("name = \"a\"\n", "cron = \"* * * * *\"\n", "stages = ");
        for (old, new, expected) in [
            (name, "", "has no `name`"),
            (cron, "", "has no `cron` line"),
            ("stages = [\"collect\"]\n", "", "has no `stages`"),
            ("\"a\"", "\"A b\"", "`A b` is not a valid schedule name"),
            ("* * * * *", "0 0 30 2 *", "is never due"),
            ("* * * * *", "* * * * * *", "more often than once a minute"),
            (
                stages,
                "timezone = \"Europe/Berln\"\nstages = ",
                "did you mean `Europe/Berlin`",
            ),
            (
                stages,
                "catch_up = \"two\"\nstages = ",
                "`two` is not one of none, one, all",
            ),
            (
                stages,
                "overlap = \"kill\"\nstages = ",
                "`kill` is not one of skip, queue",
            ),
            (
                stages,
                "timeout = \"soon\"\nstages = ",
                "`soon` is not a duration",
            ),
            (stages, "timeout = \"0s\"\nstages = ", "`timeout`: it is 0"),
            (
                stages,
                "timout = \"5s\"\nstages = ",
                "did you mean `timeout`?",
            ),
            ("collect", "colect", "did you mean `collect`?"),
            ("collect", "serve", "the commands are collect, import"),
            ("collect", "collect 'a", "an unclosed quote"),
        ] {
            let text = good.replace(old, new);
            let error = parse(&format!("[[schedule]]\n{text}")).unwrap_err();
            assert!(
                error.contains(expected) && error.contains(", line "),
                "{text}\n{error}"
            );
        }
        let error = parse(&format!("[[schedule]]\n{good}[[schedule]]\n{good}")).unwrap_err();
        assert!(error.contains("`a` is listed twice"), "{error}");
        let error = parse("schedule = 5\n").unwrap_err();
        assert!(error.contains("write a list"), "{error}");
    }
}
