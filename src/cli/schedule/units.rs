//! Units that start `topicmill schedule run`: texts for systemd, cron, Kubernetes and launchd, each quoted by the rules
//! of the one that reads it. No file is read or written here.

use std::fmt::Write;

use croner::CronComponent;
use serde_json::json;

use crate::schedule::Entry;

/// What units have in common.
#[derive(Debug, Clone)]
pub struct Place {
    /// The program, with its path.
    pub program: String,
    /// Flags before the command: `--config` and its file.
    pub global: Vec<String>,
    /// The pipeline file, where one was named.
    pub pipeline: Option<String>,
    /// Where the program runs.
    pub folder: String,
    /// As whom; nobody else than whoever installs the unit.
    pub user: Option<String>,
    /// A file of environment variables, for secrets.
    pub env_file: Option<String>,
    /// The image of a container.
    pub image: String,
}

/// A file to write, by its name.
#[derive(Debug, PartialEq, Eq)]
pub struct Unit {
    /// Without a folder.
    pub name: String,
    /// Its text.
    pub text: String,
}

impl Place {
    /// The words of the command; `entry`: only what is due of this schedule, once.
    fn words(&self, program: &str, entry: Option<&str>, once: bool) -> Vec<String> {
        let mut words = vec![program.to_owned()];
        words.extend(self.global.iter().cloned());
        words.extend(["schedule", "run"].map(str::to_owned));
        if let Some(pipeline) = &self.pipeline {
            words.extend(["--pipeline".to_owned(), pipeline.clone()]);
        }
        if once {
            words.push("--once".to_owned());
        }
        if let Some(name) = entry {
            words.extend(["--schedule".to_owned(), name.to_owned()]);
        }
        words
    }
}

/// A timer fires for no time that a clock leaves out, and knows nothing of a process that died: it looks now and then.
const HOURLY: &str = "\
# Looks for slots whose process died, or for whose time no timer fires in spring.
OnCalendar=*-*-* *:07:00
";

/// What every service of systemd gets: it reads what it needs, and writes into its own folder.
const HARDENED: &str = "\
NoNewPrivileges=yes
CapabilityBoundingSet=
ProtectSystem=strict
ProtectHome=read-only
PrivateTmp=yes
ProtectControlGroups=yes
ProtectKernelLogs=yes
ProtectKernelModules=yes
ProtectKernelTunables=yes
ProtectClock=yes
ProtectHostname=yes
RestrictAddressFamilies=AF_INET AF_INET6 AF_UNIX
RestrictNamespaces=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
LockPersonality=yes
SystemCallArchitectures=native
UMask=0077
";

/// A timer and a service for each schedule.
pub fn systemd_timers(entries: &[Entry], place: &Place) -> Vec<Unit> {
    let units = entries.iter().flat_map(|entry| {
        // Not `topicmill-NAME`: that of a schedule `classify` would stand in front of the package's service.
        let name = format!("topicmill-schedule-{}", entry.name);
        let calendar: String = calendar_lines(entry)
            .iter()
            .map(|line| format!("OnCalendar={line}\n"))
            .collect();
        let timer = format!(
            "[Unit]\nDescription=When topicmill runs its schedule {schedule}\n\n[Timer]\n{calendar}{HOURLY}Persistent=true\n\
             AccuracySec=1s\n\n[Install]\nWantedBy=timers.target\n",
            schedule = entry.name
        );
        let words = place.words(&place.program, Some(&entry.name), true);
        let mut service = service_head(&format!("topicmill's schedule {}", entry.name));
        service.push_str("Type=oneshot\n");
        service.push_str(&service_body(place, &words));
        [
            Unit {
                name: format!("{name}.timer"),
                text: timer,
            },
            Unit {
                name: format!("{name}.service"),
                text: service,
            },
        ]
    });
    units.collect()
}

/// One service that stays, and runs all schedules.
pub fn systemd_service(place: &Place) -> Vec<Unit> {
    let words = place.words(&place.program, None, false);
    let mut text = service_head("topicmill's schedules");
    text.push_str("Type=exec\nRestart=on-failure\nRestartSec=30\nRestartPreventExitStatus=2 3\n");
    text.push_str(&service_body(place, &words));
    text.push_str("\n[Install]\nWantedBy=multi-user.target\n");
    vec![Unit {
        name: "topicmill-schedule.service".to_owned(),
        text,
    }]
}

fn service_head(description: &str) -> String {
    format!(
        "[Unit]\nDescription={description}\nWants=network-online.target\nAfter=network-online.target\n\n[Service]\n"
    )
}

fn service_body(place: &Place, words: &[String]) -> String {
    let command: Vec<String> = words.iter().map(|word| systemd_word(word)).collect();
    let mut text = format!(
        "WorkingDirectory={}\nExecStart={}\n",
        place.folder.replace('%', "%%"),
        command.join(" ")
    );
    if let Some(user) = &place.user {
        text.extend([format!("User={}\n", user.replace('%', "%%"))]);
    }
    if let Some(file) = &place.env_file {
        text.extend([format!("EnvironmentFile={}\n", file.replace('%', "%%"))]);
    }
    // Exit 75: what could not be done now is done by the next slot. 143: it was stopped, and drained.
    text.push_str("SuccessExitStatus=75 143\nTimeoutStopSec=10min\n");
    text.extend([format!("ReadWritePaths={}\n", systemd_path(&place.folder))]);
    text.push_str(HARDENED);
    text
}

/// A word of `ExecStart=`: its specifiers and variables are no others than the text says.
fn systemd_word(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=@+,".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    let word = word.replace('\\', "\\\\").replace('"', "\\\"");
    format!("\"{}\"", word.replace('%', "%%").replace('$', "$$"))
}

/// A path in a list of paths, where variables mean nothing.
fn systemd_path(path: &str) -> String {
    let path = path.replace('\\', "\\\\").replace('"', "\\\"");
    format!("\"{}\"", path.replace('%', "%%"))
}

/// The fields of a cron line as numbers, which other programs read in the same way.
struct Fields {
    minutes: Vec<u16>,
    hours: Vec<u16>,
    days: Vec<u16>,
    months: Vec<u16>,
    weekdays: Vec<u16>,
    any_day: bool,
    any_weekday: bool,
}

/// The fields; none where they say more than numbers can, such as the last Friday of a month.
fn fields(entry: &Entry) -> Option<Fields> {
    let pattern = entry.timetable.pattern();
    let all = [
        &pattern.minutes,
        &pattern.hours,
        &pattern.days,
        &pattern.months,
        &pattern.days_of_week,
    ];
    if all.into_iter().any(CronComponent::has_modifiers) {
        return None;
    }
    let mut weekdays: Vec<u16> = pattern.days_of_week.values();
    for day in &mut weekdays {
        *day %= 7;
    }
    weekdays.sort_unstable();
    weekdays.dedup();
    Some(Fields {
        minutes: pattern.minutes.values(),
        hours: pattern.hours.values(),
        days: pattern.days.values(),
        months: pattern.months.values(),
        any_weekday: pattern.is_dow_wildcard() || weekdays.len() == 7,
        weekdays,
        any_day: pattern.is_dom_wildcard(),
    })
}

/// Numbers as a list; `all` where they are as many as there are.
fn listed(numbers: &[u16], count: usize, all: &str, width: usize) -> String {
    if numbers.len() == count {
        return all.to_owned();
    }
    let numbers: Vec<String> = numbers.iter().map(|n| format!("{n:0width$}")).collect();
    numbers.join(",")
}

/// The same as `*/n` where they are even steps from 0 on, as in `0,15,30,45`.
fn stepped(numbers: &[u16], count: u16) -> String {
    if let [0, step, ..] = *numbers
        && count.is_multiple_of(step)
        && (0..count).step_by(step.into()).eq(numbers.iter().copied())
        && step > 1
    {
        return format!("*/{step}");
    }
    listed(numbers, count.into(), "*", 1)
}

/// When systemd starts a schedule. A day of the month or of the week is a line each, since systemd wants both to be true.
/// What systemd cannot say it looks at each minute, and topicmill tells what is due.
fn calendar_lines(entry: &Entry) -> Vec<String> {
    const DAYS: [&str; 7] = ["Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"];
    let Some(fields) = fields(entry) else {
        return vec!["*-*-* *:*:00".to_owned()];
    };
    let zone = entry.timetable.zone().name();
    let months = listed(&fields.months, 12, "*", 2);
    let time = format!(
        "{}:{}:00",
        listed(&fields.hours, 24, "*", 2),
        listed(&fields.minutes, 60, "*", 2)
    );
    let by_day = |days: &str| format!("*-{months}-{days} {time} {zone}");
    let days = listed(&fields.days, 31, "*", 2);
    let weekdays: Vec<&str> = fields
        .weekdays
        .iter()
        .map(|day| DAYS[usize::from(*day)])
        .collect();
    let by_weekday = format!("{} {}", weekdays.join(","), by_day("*"));
    match (fields.any_day, fields.any_weekday) {
        (_, true) => vec![by_day(&days)],
        (true, false) => vec![by_weekday],
        (false, false) => vec![by_day(&days), by_weekday],
    }
}

/// A line for `crontab -e`. Crons have no zones of their own that all of them know, so this one comes each minute, and
/// topicmill tells what is due.
pub fn crontab(place: &Place) -> Vec<Unit> {
    let words = place.words(&place.program, None, true);
    let mut words: Vec<String> = words.iter().map(|word| shell_word(word)).collect();
    words.insert(1, "-q".to_owned());
    let mut line = format!("* * * * * cd {} && ", shell_word(&place.folder));
    if let Some(file) = &place.env_file {
        // What is set there is handed on.
        let _ = write!(line, "set -a && . {} && set +a && ", shell_word(file));
    }
    line.push_str(&words.join(" "));
    // Cron ends a command at `%`, in quotes too.
    let text = format!("{}\n", line.replace('%', "\\%"));
    vec![Unit {
        name: "topicmill.crontab".to_owned(),
        text,
    }]
}

/// A word for `sh`.
fn shell_word(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=@+,".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// A `CronJob` for each schedule, in one file. Texts are JSON, which is YAML.
pub fn kubernetes(entries: &[Entry], place: &Place) -> Vec<Unit> {
    let jobs: Vec<String> = entries.iter().map(|entry| cron_job(entry, place)).collect();
    vec![Unit {
        name: "topicmill.yaml".to_owned(),
        text: jobs.join("---\n"),
    }]
}

fn cron_job(entry: &Entry, place: &Place) -> String {
    let line = fields(entry).map_or("* * * * *".to_owned(), |fields| {
        let weekdays = if fields.any_weekday {
            "*".to_owned()
        } else {
            listed(&fields.weekdays, 7, "*", 1)
        };
        let days = if fields.any_day {
            "*".to_owned()
        } else {
            listed(&fields.days, 31, "*", 1)
        };
        format!(
            "{} {} {days} {} {weekdays}",
            stepped(&fields.minutes, 60),
            stepped(&fields.hours, 24),
            listed(&fields.months, 12, "*", 1)
        )
    });
    let args: String = place.words("topicmill", Some(&entry.name), true)[1..]
        .iter()
        .map(|word| format!("                - {}\n", json!(word)))
        .collect();
    format!(
        "\
apiVersion: batch/v1
kind: CronJob
metadata:
  name: {name}
  labels:
    app.kubernetes.io/name: topicmill
spec:
  schedule: {line}
  timeZone: {zone}
  concurrencyPolicy: Forbid
  startingDeadlineSeconds: 600
  successfulJobsHistoryLimit: 1
  failedJobsHistoryLimit: 3
  jobTemplate:
    spec:
      backoffLimit: 0
      template:
        metadata:
          labels:
            app.kubernetes.io/name: topicmill
        spec:
          restartPolicy: Never
          terminationGracePeriodSeconds: 600
          automountServiceAccountToken: false
          securityContext:
            runAsNonRoot: true
            runAsUser: 10001
            fsGroup: 10001
            seccompProfile:
              type: RuntimeDefault
          containers:
            - name: topicmill
              image: {image}
              workingDir: {folder}
              args:
{args}              envFrom:
                - secretRef:
                    name: topicmill
              securityContext:
                allowPrivilegeEscalation: false
                capabilities:
                  drop: [\"ALL\"]
              volumeMounts:
                - name: data
                  mountPath: {folder}
          volumes:
            - name: data
              persistentVolumeClaim:
                claimName: topicmill
",
        name = format_args!("topicmill-{}", entry.name),
        line = json!(line),
        zone = json!(entry.timetable.zone().name()),
        image = json!(place.image),
        folder = json!(place.folder),
    )
}

/// An agent that stays, and that launchd starts again.
pub fn launchd(place: &Place) -> Vec<Unit> {
    let escaped = |text: &str| {
        text.replace('&', "&amp;")
            .replace('<', "&lt;")
            .replace('>', "&gt;")
    };
    let mut words = place.words(&place.program, None, false);
    if let Some(file) = &place.env_file {
        let command: Vec<String> = words.iter().map(|word| shell_word(word)).collect();
        let line = format!("set -a; . {}; exec {}", shell_word(file), command.join(" "));
        words = vec!["/bin/sh".to_owned(), "-c".to_owned(), line];
    }
    let words: String = words
        .iter()
        .map(|word| format!("    <string>{}</string>\n", escaped(word)))
        .collect();
    let user = place.user.as_ref().map_or(String::new(), |user| {
        format!(
            "  <key>UserName</key>\n  <string>{}</string>\n",
            escaped(user)
        )
    });
    let folder = escaped(&place.folder);
    let text = format!(
        "\
<?xml version=\"1.0\" encoding=\"UTF-8\"?>
<!DOCTYPE plist PUBLIC \"-//Apple//DTD PLIST 1.0//EN\" \"http://www.apple.com/DTDs/PropertyList-1.0.dtd\">
<plist version=\"1.0\">
<dict>
  <key>Label</key>
  <string>topicmill.schedule</string>
  <key>ProgramArguments</key>
  <array>
{words}  </array>
  <key>WorkingDirectory</key>
  <string>{folder}</string>
{user}  <key>RunAtLoad</key>
  <true/>
  <key>KeepAlive</key>
  <true/>
  <key>ThrottleInterval</key>
  <integer>10</integer>
  <key>ExitTimeOut</key>
  <integer>600</integer>
  <key>StandardErrorPath</key>
  <string>{folder}/topicmill.log</string>
</dict>
</plist>
"
    );
    vec![Unit {
        name: "topicmill.schedule.plist".to_owned(),
        text,
    }]
}

#[cfg(test)]
mod tests;
