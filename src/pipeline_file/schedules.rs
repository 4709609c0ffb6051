//! The `[[schedule]]` entries of a pipeline file.

use std::collections::HashSet;
use std::time::Duration;

use chrono_tz::{TZ_VARIANTS, Tz};
use serde::Deserialize;
use topicmill_core::labels::label_file::OneOrMore;
use topicmill_core::parse_duration;

use crate::config::toml_text::nearest;
use crate::schedule::{ScheduleEntry, Timetable};

/// The keys of a schedule.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ScheduleKeys {
    name: String,
    cron: String,
    timezone: Option<String>,
    stages: OneOrMore,
    timeout: Option<String>,
}

/// Converts all schedules.
///
/// # Errors
/// A message about the first invalid one.
pub(super) fn entries(schedules: Vec<ScheduleKeys>) -> Result<Vec<ScheduleEntry>, String> {
    let mut names = HashSet::new();
    let convert = |keys: ScheduleKeys| {
        let name = keys.name.clone();
        if !names.insert(name.clone()) {
            return Err(format!(
                "the schedule `{name}` is listed twice: change the `name` of one"
            ));
        }
        entry(keys).map_err(|why| format!("schedule `{name}`: {why}"))
    };
    schedules.into_iter().map(convert).collect()
}

fn entry(keys: ScheduleKeys) -> Result<ScheduleEntry, String> {
    let zone = match keys.timezone {
        None => Tz::UTC,
        Some(name) => name.parse().map_err(|_| unknown_zone(&name))?,
    };
    let timetable = Timetable::new(&keys.cron, zone).map_err(|error| format!("`cron`: {error}"))?;
    let lines: Vec<String> = keys.stages.into();
    if lines.is_empty() {
        let text = "it has no `stages`: add the commands that it runs, as in stages = [\"collect\", \"classify\"]";
        return Err(text.to_owned());
    }
    let stages: Result<_, _> = lines.iter().map(|line| stage(line)).collect();
    let timeout = keys.timeout.map(|text| timeout(&text)).transpose();
    Ok(ScheduleEntry {
        name: keys.name,
        timetable,
        stages: stages?,
        timeout: timeout.map_err(|why| format!("`timeout`: {why}"))?,
    })
}

fn timeout(text: &str) -> Result<Duration, String> {
    match parse_duration(text)?.to_std().unwrap_or_default() {
        Duration::ZERO => {
            Err("it is 0: write a length of time as in 30m, or leave the key out".to_owned())
        }
        timeout => Ok(timeout),
    }
}

fn unknown_zone(name: &str) -> String {
    let hint = match nearest(name, TZ_VARIANTS.map(Tz::name)) {
        Some(meant) => format!("did you mean `{meant}`?"),
        None => "use the name of a region and a city, as in `Europe/Berlin`, or `UTC`".to_owned(),
    };
    format!("`timezone`: there is no time zone `{name}`; {hint}")
}

/// Splits the command line of a stage into words. Its command and flags are checked when a schedule runs or is listed.
fn stage(line: &str) -> Result<Vec<String>, String> {
    shlex::split(line)
        .filter(|words| !words.is_empty())
        .ok_or_else(|| format!("the stage `{line}` is empty or has an unclosed quote"))
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::time::Duration;

    use crate::pipeline_file::Pipeline;
    use topicmill_core::Listing;
    use topicmill_core::table;

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
             stages = \"classify\"\ntimeout = \"2h\"\n",
        )
        .unwrap();
        let [often, nightly] = &file.schedules[..] else {
            panic!("two schedules")
        };
        assert_eq!(often.timetable.to_string(), "*/15 * * * * UTC");
        assert_eq!(often.timeout, None);
        assert_eq!(often.stages, [["collect", "--source", "arctic-shift"]]);
        assert_eq!(nightly.timetable.to_string(), "30 3 * * * Europe/Berlin");
        assert_eq!(nightly.timeout, Some(Duration::from_hours(2)));
    }

    #[test]
    fn mistakes_in_schedules_are_reported() {
        let good = "name = \"a\"\ncron = \"* * * * *\"\nstages = [\"collect\"]\n";
        let (name, cron, stages) = ("name = \"a\"\n", "cron = \"* * * * *\"\n", "stages = ");
        for (old, new, expected) in table! {
            name, "", "missing field `name`";
            cron, "", "missing field `cron`";
            "stages = [\"collect\"]\n", "", "missing field `stages`";
            "[\"collect\"]", "[]", "has no `stages`";
            "* * * * *", "0 0 30 2 *", "is never due";
            stages, "timezone = \"Europe/Berln\"\nstages = ", "did you mean `Europe/Berlin`";
            stages, "timeout = \"soon\"\nstages = ", "`soon` is not a duration";
            stages, "timout = \"5s\"\nstages = ", "line 5, column 1: unknown field `timout`; did you mean `timeout`?";
            "collect", "collect 'a", "an unclosed quote";
        } {
            let text = good.replace(old, new);
            let error = parse(&format!("[[schedule]]\n{text}")).unwrap_err();
            assert!(error.contains(expected), "{text}\n{error}");
        }
        let error = parse(&format!("[[schedule]]\n{good}[[schedule]]\n{good}")).unwrap_err();
        assert!(error.contains("`a` is listed twice"), "{error}");
    }
}
