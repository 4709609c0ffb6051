//! Names what limits the speed of a run: the GPU, the CPU, the database or the source. Uses only the counts of the run
//! record.

use topicmill_core::record::{ClassifyCounts, CollectCounts, RunCounts, StageTimes};
use topicmill_core::string_enum;

/// The engine counts as the limit if its waits for posts and for the writer each take at most this share of its time:
/// without a wait of a tenth, a run would be a ninth faster at most.
const MAX_WAITING_SHARE: f64 = 0.1;
/// Minimum share of a collect run's time spent in waits for the source's rate limits that makes the source the limit:
/// no other part takes as much.
const MIN_SOURCE_SHARE: f64 = 0.5;

const FASTER_MODEL: &str = "`topicmill bench` finds the fastest precision and batch size; a smaller --model or a GPU is faster";
const FASTER_SMALL_MODEL: &str = "a smaller --small-model is faster";
const MORE_CORES: &str = "give the process more cores, or the model fewer --threads";
const FASTER_DATABASE: &str = "put it on a fast local disk, or, on PostgreSQL, close to this machine; \
     `classify.workers` = 2 computes while the other engine reads and writes";

string_enum! {
    /// The part that limits the speed of a run.
    Limit {
        /// The model, on a GPU.
        Gpu = "GPU",
        /// The model, or the tokenizer, on the CPU.
        Cpu = "CPU",
        /// Reading from or writing to the database.
        Database = "database",
        /// Waiting for the source.
        Source = "source",
    }
}

/// A limit, the figures that show it, and what to change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bottleneck {
    /// The limit.
    pub limit: Limit,
    /// The figures, as part of a sentence.
    pub why: String,
    /// Change that would help.
    pub change: &'static str,
}

impl Bottleneck {
    fn new(limit: Limit, why: String, change: &'static str) -> Self {
        Self { limit, why, change }
    }
}

/// Returns what limited a run of `seconds`; `None` if nothing was computed, or the counts do not show it.
pub fn of_run(counts: &RunCounts, seconds: f64) -> Option<Bottleneck> {
    match counts {
        RunCounts::Classify(counts) => of_classify(counts),
        RunCounts::Collect(counts) => of_collect(counts, seconds),
        RunCounts::Import(_) | RunCounts::Purge(_) | RunCounts::Unknown => None,
    }
}

/// Returns what limited a run of `classify`.
pub fn of_classify(counts: &ClassifyCounts) -> Option<Bottleneck> {
    let times = &counts.stages;
    let all = times.engine_busy_secs + times.engine_idle_secs + times.engine_blocked_secs;
    // An engine that received no posts has no bottleneck.
    if all <= 0.0 || counts.posts + counts.failed == 0 {
        return None;
    }
    let mut devices = counts.settings.devices.iter();
    let device = if devices.any(|name| name.starts_with("cuda")) {
        Limit::Gpu
    } else {
        Limit::Cpu
    };
    let idle = times.engine_idle_secs / all;
    let blocked = times.engine_blocked_secs / all;
    let bottleneck = if idle <= MAX_WAITING_SHARE && blocked <= MAX_WAITING_SHARE {
        let busy = percent(1.0 - idle - blocked);
        let why = format!("the model computes {busy} of the time");
        Bottleneck::new(device, why, FASTER_MODEL)
    } else if blocked > idle {
        let blocked = percent(blocked);
        let why = format!("the model waits {blocked} of the time for writes");
        Bottleneck::new(Limit::Database, why, FASTER_DATABASE)
    } else {
        before_engine(times, device, idle)
    };
    Some(bottleneck)
}

/// Returns the step that takes the longest before the engine, which waits for posts for the share `idle` of its time.
fn before_engine(times: &StageTimes, device: Limit, idle: f64) -> Bottleneck {
    let reading = times.claim_secs + times.look_up_secs;
    let (shortlisting, tokenising) = (times.shortlist_secs, times.tokenize_secs);
    let slowest = |limit, step: &str, secs: f64, change| {
        let idle = percent(idle);
        let why = format!(
            "the model waits {idle} of the time for posts, and {step} them takes the longest ({secs:.1} s)"
        );
        Bottleneck::new(limit, why, change)
    };
    if reading >= shortlisting.max(tokenising) {
        slowest(Limit::Database, "reading", reading, FASTER_DATABASE)
    } else if shortlisting >= tokenising {
        let step = "shortlisting labels for";
        slowest(device, step, shortlisting, FASTER_SMALL_MODEL)
    } else {
        slowest(Limit::Cpu, "tokenising", tokenising, MORE_CORES)
    }
}

fn percent(share: f64) -> String {
    format!("{:.0} %", 100.0 * share)
}

/// Returns what limited a run of `collect`.
fn of_collect(counts: &CollectCounts, seconds: f64) -> Option<Bottleneck> {
    let waits = counts.traffic.values().map(|traffic| traffic.waits.total());
    let waited: f64 = waits.map(|total| total.sum.as_secs_f64()).sum();
    (waited > 0.0 && waited >= MIN_SOURCE_SHARE * seconds).then(|| {
        let why = format!("{waited:.0} of {seconds:.0} s were waits for its rate limits");
        let change = "nothing here makes it faster: read fewer subreddits, or collect less often";
        Bottleneck::new(Limit::Source, why, change)
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::time::Duration;

    use super::*;
    use topicmill_core::record::{RunSettings, Traffic, WaitTotal, Waits};

    /// A run whose engine computed, waited for posts and waited for the writer for these times; the others are the
    /// times for reading, the small model and tokenising.
    fn labelled(device: &str, engine: [f64; 3], before: [f64; 3]) -> Option<Limit> {
        let done = ClassifyCounts {
            posts: 1,
            stages: StageTimes {
                engine_busy_secs: engine[0],
                engine_idle_secs: engine[1],
                engine_blocked_secs: engine[2],
                claim_secs: before[0] / 2.0,
                look_up_secs: before[0] / 2.0,
                shortlist_secs: before[1],
                tokenize_secs: before[2],
                ..StageTimes::default()
            },
            settings: RunSettings {
                devices: vec![device.to_owned()],
                ..RunSettings::default()
            },
            ..ClassifyCounts::default()
        };
        of_classify(&done).map(|found| found.limit)
    }

    #[test]
    fn the_limit_of_a_labelling_run_is_the_part_that_the_rest_waits_for() {
        let (busy, waits, blocked) = ([98.0, 1.0, 1.0], [60.0, 40.0, 0.0], [60.0, 10.0, 30.0]);
        for (device, engine, before, limit) in [
            ("cpu", busy, [9.0; 3], Some(Limit::Cpu)),
            ("cuda:0", busy, [9.0; 3], Some(Limit::Gpu)),
            ("cpu", [85.0, 5.0, 10.0], [9.0; 3], Some(Limit::Cpu)),
            ("cuda:0", blocked, [9.0; 3], Some(Limit::Database)),
            ("cuda:0", waits, [9.0, 1.0, 8.0], Some(Limit::Database)),
            ("cuda:0", waits, [1.0, 9.0, 8.0], Some(Limit::Gpu)),
            ("cuda:0", waits, [1.0, 0.0, 8.0], Some(Limit::Cpu)),
            ("cpu", [0.0; 3], [0.0; 3], None),
        ] {
            assert_eq!(
                labelled(device, engine, before),
                limit,
                "{engine:?} {before:?}"
            );
        }
        assert_eq!(of_classify(&ClassifyCounts::default()), None);
    }

    #[test]
    fn the_source_limits_a_collect_run_that_mostly_waits_for_it() {
        let waits = Waits {
            own_pace: WaitTotal {
                times: 3,
                sum: Duration::from_secs(30),
            },
            ..Waits::default()
        };
        let traffic = Traffic {
            waits,
            ..Traffic::default()
        };
        let done = CollectCounts {
            traffic: BTreeMap::from([("reddit".to_owned(), traffic)]),
            ..CollectCounts::default()
        };
        let counts = RunCounts::Collect(done.into());
        let limit = |seconds| of_run(&counts, seconds).map(|found| found.limit);
        assert_eq!((limit(60.0), limit(61.0)), (Some(Limit::Source), None));
        assert_eq!(of_run(&RunCounts::Collect(Box::default()), 0.0), None);
    }
}
