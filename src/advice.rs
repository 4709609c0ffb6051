//! What limits a run, and what to change: stages, GPU figures and settings in, sentences out. Pure.

use std::collections::BTreeSet;

use serde::Serialize;

use topicmill_core::record::{Bottleneck, BudgetOrigin, ClassifyCounts, GpuUsage, gib};

/// Percent of the time that a GPU should compute: below it waits, above it is full. A goal, not a measurement: NVML counts
/// a GPU as busy while one kernel runs, so that 95 is as good as 100, and 75 leaves a quarter to be won.
pub const GPU_TARGET: (u8, u8) = (75, 95);
/// Percent of a GPU's memory that should be in use at the most. A goal as well: a longer text than any before it needs the
/// last 5.
pub const MEMORY_TARGET: (u8, u8) = (80, 95);
/// Fewer samples of a GPU say little: with one each two seconds, these are the first ten seconds, in which sessions start.
const FEW_SAMPLES: u64 = 5;
/// In a run of fewer seconds its start and its end weigh much.
const SHORT_SECS: f64 = 10.0;

/// How a figure stands to its target.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum TargetRange {
    /// Below it.
    Under,
    /// On it.
    Within,
    /// Above it.
    Over,
}

/// How a GPU stands to the targets; `None` where it was not told.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct GpuTargets {
    /// Which it is.
    pub device: String,
    /// Its mean use.
    pub gpu: Option<TargetRange>,
    /// Its memory, at the most.
    pub memory: Option<TargetRange>,
}

/// What limits a run, and what to change.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RunVerdict {
    /// What limits it.
    pub limit: Option<Bottleneck>,
    /// Whether every GPU met both targets; `None` without figures.
    pub on_target: Option<bool>,
    /// One a GPU.
    pub gpus: Vec<GpuTargets>,
    /// Sentences, what matters most first.
    pub advice: Vec<String>,
}

/// Judges a run.
pub fn verdict(run: &ClassifyCounts) -> RunVerdict {
    let gpus: Vec<GpuTargets> = run.gpu.iter().map(compare_with_targets).collect();
    let told = gpus
        .iter()
        .all(|gpu| gpu.gpu.is_some() && gpu.memory.is_some());
    let within = |stand| stand == Some(TargetRange::Within);
    let on_target = (told && !gpus.is_empty())
        .then(|| gpus.iter().all(|gpu| within(gpu.gpu) && within(gpu.memory)));
    // An engine that got no posts waited for none.
    let worked = run.posts + run.failed > 0;
    let limit = run.stages.bottleneck().filter(|_| worked).map(|slow| {
        let waits = gpus.iter().any(|gpu| gpu.gpu == Some(TargetRange::Under));
        if slow == Bottleneck::Model && waits {
            Bottleneck::Batches
        } else {
            slow
        }
    });
    let mut advice = vec![match limit {
        None => "The run computed nothing, so nothing limited it.".to_owned(),
        Some(Bottleneck::Model) => model(run),
        Some(Bottleneck::Batches) => batches(run),
        Some(Bottleneck::Reading) => reading(run),
        Some(Bottleneck::Shortlist) => {
            let change = "A smaller one is quicker (`--small-model`).";
            waits_for(run, "the small model takes", change)
        }
        Some(Bottleneck::Tokenizer) => tokenizer(run),
        Some(Bottleneck::Writing) => writing(run),
    }];
    advice.extend(memory(run));
    advice.extend(doubts(run));
    RunVerdict {
        limit,
        on_target,
        gpus,
        advice,
    }
}

fn compare_with_targets(figures: &GpuUsage) -> GpuTargets {
    let to = |percent: f64, (least, most): (u8, u8)| {
        // As it is shown, so that 75 % is never called less than 75 %.
        let percent = percent.round();
        if percent < least.into() {
            TargetRange::Under
        } else if percent > most.into() {
            TargetRange::Over
        } else {
            TargetRange::Within
        }
    };
    GpuTargets {
        device: figures.gpu.device.clone(),
        gpu: figures.gpu_percent.map(|gpu| to(gpu.mean, GPU_TARGET)),
        memory: figures.memory_percent().map(|used| to(used, MEMORY_TARGET)),
    }
}

/// A GPU's run in one line: `cuda:0 NVIDIA H100: GPU 87 %, memory 61 of 80 GiB, 412 W: memory under 80 %`.
pub fn gpu_line(figures: &GpuUsage) -> String {
    let of_gpu = compare_with_targets(figures);
    let mut parts = Vec::new();
    parts.extend(
        figures
            .gpu_percent
            .map(|gpu| format!("GPU {:.0} %", gpu.mean)),
    );
    parts.extend(figures.memory_mib.map(|memory| {
        let total = gib(figures.memory_total_mib.into());
        format!("memory {} of {total} GiB", gib(memory.max.into()))
    }));
    parts.extend(figures.watts.map(|watts| format!("{:.0} W", watts.mean)));
    let missed = [
        missed("GPU", of_gpu.gpu, GPU_TARGET),
        missed("memory", of_gpu.memory, MEMORY_TARGET),
    ];
    let missed: Vec<String> = missed.into_iter().flatten().collect();
    let end = match (of_gpu.gpu, of_gpu.memory) {
        (None, None) => "no figures".to_owned(),
        _ if missed.is_empty() => "on target".to_owned(),
        _ => missed.join(", "),
    };
    let head = format!("{} {}", figures.gpu.device, figures.gpu.name);
    let told = Some(parts.join(", ")).filter(|told| !told.is_empty());
    [Some(head), told, Some(end)]
        .into_iter()
        .flatten()
        .collect::<Vec<_>>()
        .join(": ")
}

fn missed(what: &str, stand: Option<TargetRange>, (least, most): (u8, u8)) -> Option<String> {
    match stand? {
        TargetRange::Under => Some(format!("{what} under {least} %")),
        TargetRange::Over => Some(format!("{what} over {most} %")),
        TargetRange::Within => None,
    }
}

/// What looks for a better size of a batch.
const SEARCH: &str =
    "the setting `classify.batch_tokens` = \"auto\" looks for the fastest size of a batch";

const LOCAL_DISK: &str =
    "Put the database file on a local disk, and see that no other program writes to it meanwhile";

fn model(run: &ClassifyCounts) -> String {
    const ENOUGH: &str = "Posts come and labels go faster than it computes";
    let (set, devices) = (&run.settings, &run.settings.devices);
    if devices.iter().any(|device| device.starts_with("cuda")) {
        return match least_busy_percent(run) {
            None => {
                format!("{ENOUGH}; whether the GPU is full cannot be told without its figures.")
            }
            Some(percent) if percent > GPU_TARGET.1.into() => format!(
                "{ENOUGH}, and the GPU is full. Faster is only another GPU beside it (`--device cuda:0,1`), a graph \
                 of lower precision (`--precision`) or a smaller model (`--model`)."
            ),
            Some(_) => {
                format!("{ENOUGH}, and the GPU is as busy as it should be: nothing to change.")
            }
        };
    }
    let mut faster = Vec::new();
    if set.batch_tokens_from == BudgetOrigin::Set {
        faster.push(SEARCH.to_owned());
    }
    if devices.len() == 1 && set.threads < set.cores {
        faster.push(format!("`--threads 0` takes all {} cores", set.cores));
    }
    if set.precision == "fp32" {
        faster.push(
            "`--precision int8` is quicker, if the model has such a graph and `topicmill bench agreement` finds it to agree"
                .to_owned(),
        );
    }
    faster.push("a smaller model (`--model`) or a GPU (`--device cuda`) is quicker".to_owned());
    format!("{ENOUGH}. What helps: {}.", faster.join("; "))
}

fn batches(run: &ClassifyCounts) -> String {
    let devices = &run.settings.devices;
    let second = format!(
        "`classify.workers` = {} gives each GPU one engine more, which computes while another makes its batch ready",
        devices.len() + devices.iter().collect::<BTreeSet<_>>().len()
    );
    let change = match run.settings.batch_tokens_from {
        BudgetOrigin::Searched | BudgetOrigin::Model => second,
        BudgetOrigin::Default | BudgetOrigin::Set => format!("{SEARCH}; {second}"),
    };
    format!(
        "The engine never waits, but the GPU computes for {} % of the time only: the rest goes into making batches \
         ready and starting them. What helps: {change}.",
        least_busy_percent(run).unwrap_or_default()
    )
}

/// Percent of the time in which the GPU computed that computed the least.
fn least_busy_percent(run: &ClassifyCounts) -> Option<f64> {
    let busy = run.gpu.iter().filter_map(|gpu| gpu.gpu_percent);
    busy.map(|gpu| gpu.mean.round()).reduce(f64::min)
}

fn reading(run: &ClassifyCounts) -> String {
    let change = if run.settings.database == "sqlite" {
        format!(
            "{LOCAL_DISK}; PostgreSQL (`--database postgres://…`) lets several read and write at once."
        )
    } else {
        format!(
            "Run `classify` nearer to the server; `classify.workers` = {} claims posts for one engine while another computes.",
            run.settings.devices.len() + 1
        )
    };
    waits_for(run, "claiming and looking up take", &change)
}

fn tokenizer(run: &ClassifyCounts) -> String {
    let set = &run.settings;
    let on_cpu = set.devices.iter().any(|device| device == "cpu");
    let change = if on_cpu && set.threads > 1 {
        let fewer = set.threads - 1;
        format!("It shares the cores with the model: `--threads {fewer}` leaves it one.")
    } else {
        let cores = match set.cores {
            0 => "it has".to_owned(),
            1 => "the one that it has".to_owned(),
            several => format!("the {several} that it has"),
        };
        format!(
            "It works on every core, unless TOKENIZERS_PARALLELISM is `false`: give the process more cores than {cores}."
        )
    };
    waits_for(run, "the tokenizer takes", &change)
}

/// How long the engine waited for posts, and for what.
fn waits_for(run: &ClassifyCounts, what: &str, change: &str) -> String {
    let stages = &run.stages;
    let (idle, _) = stages.waiting_shares().unwrap_or_default();
    let picking = if stages.shortlist_secs > 0.0 {
        format!("the small model {:.1} s, ", stages.shortlist_secs)
    } else {
        String::new()
    };
    format!(
        "The engine waits for posts {:.0} % of the time (claiming {:.1} s, looking up {:.1} s, {picking}tokenising \
         {:.1} s), because {what} longest of what comes before it. {change}",
        100.0 * idle,
        stages.claim_secs,
        stages.look_up_secs,
        stages.tokenize_secs
    )
}

fn writing(run: &ClassifyCounts) -> String {
    let (_, blocked) = run.stages.waiting_shares().unwrap_or_default();
    let change = if run.settings.database == "sqlite" {
        format!(
            "{LOCAL_DISK}; where that is not enough, PostgreSQL (`--database postgres://…`) takes labels from several \
             writers at once."
        )
    } else {
        format!(
            "Run `classify` nearer to the server, and give the server's log a fast disk; `classify.workers` = {} computes on \
             one engine while the labels of another are written.",
            run.settings.devices.len() + 1
        )
    };
    format!(
        "The engine waits {:.0} % of the time until labels are written ({:.1} s of writing). {change}",
        100.0 * blocked,
        run.stages.write_secs
    )
}

/// What there is to say of the memory of GPUs.
fn memory(run: &ClassifyCounts) -> Option<String> {
    let used = run.gpu.iter().filter_map(GpuUsage::memory_percent);
    let (least, most) = used.map(f64::round).fold(None, |range, used| {
        let (least, most) = range.unwrap_or((used, used));
        Some((used.min(least), used.max(most)))
    })?;
    let (low, high) = MEMORY_TARGET;
    if most > high.into() {
        return Some(format!(
            "Memory is tight, {most} % at the most: a batch that finds no room is computed again in halves. A \
             smaller `classify.batch_tokens` or fewer `classify.workers` leave more."
        ));
    }
    if least >= low.into() {
        return None;
    }
    let is_starved = |gpu| compare_with_targets(gpu).gpu == Some(TargetRange::Under);
    let starved = run.gpu.iter().any(is_starved);
    let tokens = run.settings.batch_tokens;
    let why = if starved && run.stages.bottleneck() != Some(Bottleneck::Model) {
        "larger batches would not help while the GPU waits for something else".to_owned()
    } else if run.settings.batch_tokens_from == BudgetOrigin::Model {
        "the model computes in batches of one size".to_owned()
    } else if run.settings.batch_tokens_from == BudgetOrigin::Searched {
        format!("{tokens} padded tokens were the fastest size of a batch that was found here")
    } else {
        "a larger `classify.batch_tokens` fills it, and pays only if it is faster: `topicmill bench autotune` tells".to_owned()
    };
    Some(format!(
        "Memory is used to {least} %, less than the {low} % aimed at. It is no aim by itself: {why}."
    ))
}

/// Why the verdict may not hold.
fn doubts(run: &ClassifyCounts) -> Vec<String> {
    let mut doubts = Vec::new();
    if run.posts + run.failed > 0 && run.seconds < SHORT_SECS {
        doubts.push(format!(
            "The run took only {:.1} s, in which its start weighs much: judge by a longer one.",
            run.seconds
        ));
    } else if run.gpu.iter().any(|gpu| gpu.samples < FEW_SAMPLES) {
        doubts.push(format!(
            "A GPU was asked fewer than {FEW_SAMPLES} times: judge by a longer run."
        ));
    }
    if let Some(note) = &run.gpu_note {
        doubts.push(format!("GPU figures are missing or doubtful: {note}."));
    }
    doubts
}

#[cfg(test)]
mod tests;
