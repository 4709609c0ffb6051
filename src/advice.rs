//! Finds the bottleneck of a labelling run and suggests changes. All functions are pure: they turn a run's timings, GPU
//! figures and settings into sentences.

use std::collections::BTreeSet;

use serde::Serialize;

use topicmill_core::record::{Bottleneck, BudgetOrigin, ClassifyCounts, GpuUsage, gib};

/// Target range for GPU utilisation, in percent. These are goals, not measured optima: NVML counts a GPU as busy while
/// a single kernel is running, so 95 is as good as 100; below 75, the GPU is idle for more than a quarter of the time.
pub const GPU_TARGET: (u8, u8) = (75, 95);
/// Target range for peak GPU memory use, in percent. This is also a goal: the last 5 % is headroom for longer texts.
pub const MEMORY_TARGET: (u8, u8) = (80, 95);
/// Minimum number of GPU samples for reliable figures. At one sample every two seconds, a run with fewer lasted less
/// than ten seconds, most of it start-up.
const FEW_SAMPLES: u64 = 5;
/// Seconds below which start-up and shutdown dominate a run.
const SHORT_SECS: f64 = 10.0;

/// The position of a figure relative to its target range.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum TargetRange {
    /// Below the range.
    Under,
    /// In the range.
    Within,
    /// Above the range.
    Over,
}

/// A GPU's figures compared with the targets; `None` if a figure is missing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct GpuTargets {
    /// The device, such as `cuda:0`.
    pub device: String,
    /// Mean utilisation.
    pub gpu: Option<TargetRange>,
    /// Peak memory use.
    pub memory: Option<TargetRange>,
}

/// The diagnosis of a run.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RunVerdict {
    /// The bottleneck.
    pub limit: Option<Bottleneck>,
    /// True if every GPU met both targets; `None` if there is no GPU or a figure is missing.
    pub on_target: Option<bool>,
    /// One entry per GPU.
    pub gpus: Vec<GpuTargets>,
    /// Suggestions, the most important first.
    pub advice: Vec<String>,
}

/// Diagnoses a run.
pub fn verdict(run: &ClassifyCounts) -> RunVerdict {
    let gpus: Vec<GpuTargets> = run.gpu.iter().map(compare_with_targets).collect();
    let all_measured = gpus
        .iter()
        .all(|gpu| gpu.gpu.is_some() && gpu.memory.is_some());
    let within = |stand| stand == Some(TargetRange::Within);
    let on_target = (all_measured && !gpus.is_empty())
        .then(|| gpus.iter().all(|gpu| within(gpu.gpu) && within(gpu.memory)));
    // An engine that received no posts has no bottleneck.
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
            let change = "A smaller one is faster (`--small-model`).";
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
        // Rounded as displayed, so that 75 % is never reported as below 75 %.
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

/// Formats the figures of a GPU: `cuda:0 NVIDIA H100: GPU 87 %, memory 61 of 80 GiB, 412 W: memory under 80 %`.
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
    let measured = Some(parts.join(", ")).filter(|text| !text.is_empty());
    [Some(head), measured, Some(end)]
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

/// Suggestion to search for a better batch size.
const SEARCH: &str =
    "the setting `classify.batch_tokens` = \"auto\" searches for the fastest batch size";

const LOCAL_DISK: &str =
    "Put the database file on a local disk and make sure that no other program writes to it";

fn model(run: &ClassifyCounts) -> String {
    const ENOUGH: &str =
        "The model is the bottleneck: posts arrive and labels are written faster than it computes";
    let (set, devices) = (&run.settings, &run.settings.devices);
    if devices.iter().any(|device| device.starts_with("cuda")) {
        return match least_busy_percent(run) {
            None => {
                format!(
                    "{ENOUGH}; without GPU figures it is unknown whether the GPU is fully used."
                )
            }
            Some(percent) if percent > GPU_TARGET.1.into() => format!(
                "{ENOUGH}, and the GPU is fully used. To speed it up, use a second GPU (`--device cuda:0,1`), a graph \
                 of lower precision (`--precision`) or a smaller model (`--model`)."
            ),
            Some(_) => {
                format!(
                    "{ENOUGH}, and the GPU is as busy as it should be: there is nothing to change."
                )
            }
        };
    }
    let mut faster = Vec::new();
    if set.batch_tokens_from == BudgetOrigin::Set {
        faster.push(SEARCH.to_owned());
    }
    if devices.len() == 1 && set.threads < set.cores {
        faster.push(format!("`--threads 0` uses all {} cores", set.cores));
    }
    if set.precision == "fp32" {
        faster.push(
            "`--precision int8` is faster, if the model has an int8 graph: check it with `topicmill bench agreement`"
                .to_owned(),
        );
    }
    faster.push("a smaller model (`--model`) or a GPU (`--device cuda`) is faster".to_owned());
    format!("{ENOUGH}. To speed it up: {}.", faster.join("; "))
}

fn batches(run: &ClassifyCounts) -> String {
    let devices = &run.settings.devices;
    let second = format!(
        "`classify.workers` = {} gives each GPU a second engine, which computes while the first prepares its batch",
        devices.len() + devices.iter().collect::<BTreeSet<_>>().len()
    );
    let change = match run.settings.batch_tokens_from {
        BudgetOrigin::Searched | BudgetOrigin::Model => second,
        BudgetOrigin::Default | BudgetOrigin::Set => format!("{SEARCH}; {second}"),
    };
    format!(
        "The engine never waits, but the GPU computes only {} % of the time: the rest is spent on preparing and \
         launching batches. To speed it up: {change}.",
        least_busy_percent(run).unwrap_or_default()
    )
}

/// Utilisation of the least busy GPU, in percent.
fn least_busy_percent(run: &ClassifyCounts) -> Option<f64> {
    let busy = run.gpu.iter().filter_map(|gpu| gpu.gpu_percent);
    busy.map(|gpu| gpu.mean.round()).reduce(f64::min)
}

fn reading(run: &ClassifyCounts) -> String {
    let change = if run.settings.database == "sqlite" {
        format!("{LOCAL_DISK}; PostgreSQL (`--database postgres://…`) allows concurrent writers.")
    } else {
        format!(
            "Run `classify` closer to the server; with `classify.workers` = {}, one engine claims posts while another \
             computes.",
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
        format!("It shares the cores with the model: `--threads {fewer}` leaves it one core.")
    } else {
        let cores = match set.cores {
            0 => "it has".to_owned(),
            1 => "the one that it has".to_owned(),
            several => format!("the {several} that it has"),
        };
        format!(
            "It uses every core, unless TOKENIZERS_PARALLELISM is `false`: give the process more cores than {cores}."
        )
    };
    waits_for(run, "the tokenizer takes", &change)
}

/// Formats how long the engine waited for posts, and why.
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
         {:.1} s), because {what} the longest. {change}",
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
            "{LOCAL_DISK}; if that is not enough, PostgreSQL (`--database postgres://…`) accepts concurrent \
             writers."
        )
    } else {
        format!(
            "Run `classify` closer to the server and put the server's WAL on a fast disk; with `classify.workers` = \
             {}, one engine computes while the labels of another are written.",
            run.settings.devices.len() + 1
        )
    };
    format!(
        "The engine waits {:.0} % of the time for labels to be written ({:.1} s of writing). {change}",
        100.0 * blocked,
        run.stages.write_secs
    )
}

/// Returns advice on GPU memory, unless its use is within the target range or unknown.
fn memory(run: &ClassifyCounts) -> Option<String> {
    let used = run.gpu.iter().filter_map(GpuUsage::memory_percent);
    let (least, most) = used.map(f64::round).fold(None, |range, used| {
        let (least, most) = range.unwrap_or((used, used));
        Some((used.min(least), used.max(most)))
    })?;
    let (low, high) = MEMORY_TARGET;
    if most > high.into() {
        return Some(format!(
            "Memory is tight, {most} % at peak: a batch that does not fit is split in half and recomputed. A \
             smaller `classify.batch_tokens` or fewer `classify.workers` need less."
        ));
    }
    if least >= low.into() {
        return None;
    }
    let is_starved = |gpu| compare_with_targets(gpu).gpu == Some(TargetRange::Under);
    let starved = run.gpu.iter().any(is_starved);
    let tokens = run.settings.batch_tokens;
    let why = if starved && run.stages.bottleneck() != Some(Bottleneck::Model) {
        "larger batches would not help while the GPU is waiting for something else".to_owned()
    } else if run.settings.batch_tokens_from == BudgetOrigin::Model {
        "the model requires a fixed batch size".to_owned()
    } else if run.settings.batch_tokens_from == BudgetOrigin::Searched {
        format!("{tokens} padded tokens per batch were the fastest size found on this machine")
    } else {
        "a larger `classify.batch_tokens` uses more, but is not always faster: measure with `topicmill bench \
         autotune`".to_owned()
    };
    Some(format!(
        "{least} % of the GPU memory is used, less than the target of {low} %. That is not a problem in itself: {why}."
    ))
}

/// Returns the reasons why the diagnosis may not hold.
fn doubts(run: &ClassifyCounts) -> Vec<String> {
    let mut doubts = Vec::new();
    if run.posts + run.failed > 0 && run.seconds < SHORT_SECS {
        doubts.push(format!(
            "The run took only {:.1} s, so start-up dominates: use a longer run.",
            run.seconds
        ));
    } else if run.gpu.iter().any(|gpu| gpu.samples < FEW_SAMPLES) {
        doubts.push(format!(
            "A GPU was sampled fewer than {FEW_SAMPLES} times: use a longer run."
        ));
    }
    if let Some(note) = &run.gpu_note {
        doubts.push(format!("GPU figures are missing or unreliable: {note}."));
    }
    doubts
}

#[cfg(test)]
mod tests;
