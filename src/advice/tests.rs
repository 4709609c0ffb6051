//! Tests of the diagnosis and the advice, for each bottleneck.

use super::*;
use topicmill_core::record::{Gpu, RunSettings, StageTimes, Summary};

/// Seconds that an engine spends computing, waiting for posts, and waiting for the writer.
const NEVER_WAITS: (f64, f64, f64) = (99.0, 0.5, 0.5);
const WAITS: (f64, f64, f64) = (60.0, 40.0, 0.0);
const BLOCKED: (f64, f64, f64) = (60.0, 0.0, 40.0);

/// A run of one minute on one engine.
fn run(device: &str, (busy, idle, blocked): (f64, f64, f64)) -> ClassifyCounts {
    ClassifyCounts {
        posts: 1_000,
        seconds: 60.0,
        stages: StageTimes {
            engine_busy_secs: busy,
            engine_idle_secs: idle,
            engine_blocked_secs: blocked,
            claim_secs: 20.0,
            tokenize_secs: 10.0,
            ..StageTimes::default()
        },
        settings: RunSettings {
            devices: vec![device.into()],
            precision: "fp32".into(),
            batch_tokens_from: BudgetOrigin::Searched,
            threads: 8,
            cores: 8,
            database: "postgres".into(),
            ..RunSettings::default()
        },
        ..ClassifyCounts::default()
    }
}

fn figures(percent: f64, memory_percent: u32) -> GpuUsage {
    let summary = |mean: f64, max| {
        Some(Summary {
            mean,
            max,
            ..Summary::default()
        })
    };
    GpuUsage {
        gpu: Gpu {
            device: "cuda:0".into(),
            name: "NVIDIA H100".into(),
            uuid: "GPU-1".into(),
        },
        samples: 30,
        gpu_percent: summary(percent, 100),
        memory_mib: summary(0.0, 1024 * memory_percent),
        memory_total_mib: 1024 * 100,
        watts: summary(412.0, 412),
    }
}

fn on_gpu(stages: (f64, f64, f64), percent: f64, memory_percent: u32) -> ClassifyCounts {
    ClassifyCounts {
        gpu: vec![figures(percent, memory_percent)],
        ..run("cuda:0", stages)
    }
}

fn with(mut run: ClassifyCounts, change: impl FnOnce(&mut ClassifyCounts)) -> ClassifyCounts {
    change(&mut run);
    run
}

fn on_sqlite(run: ClassifyCounts) -> ClassifyCounts {
    with(run, |run| run.settings.database = "sqlite".into())
}

fn tokenizing(run: ClassifyCounts) -> ClassifyCounts {
    with(run, |run| run.stages.tokenize_secs = 30.0)
}

/// Asserts that a run has this bottleneck and that the advice contains `expected` but not `not`.
fn assert_limit(run: &ClassifyCounts, limit: Bottleneck, expected: &str, not: &str) {
    let found = verdict(run);
    let advice = found.advice.join(" ");
    assert_eq!(found.limit, Some(limit), "{advice}");
    assert!(
        advice.contains(expected) && !advice.contains(not),
        "{expected}: {advice}"
    );
}

#[test]
fn advice_names_the_slow_step_before_the_engine() {
    let waits = || on_gpu(WAITS, 50.0, 85);
    let picking = with(waits(), |run| run.stages.shortlist_secs = 31.0);
    let (more, disk) = ("`classify.workers` = 2", "local disk");
    assert_limit(&waits(), Bottleneck::Reading, "claiming 20.0 s", disk);
    assert_limit(&waits(), Bottleneck::Reading, more, "--threads");
    assert_limit(
        &on_sqlite(waits()),
        Bottleneck::Reading,
        disk,
        "classify.workers",
    );
    let small = "--small-model";
    assert_limit(&picking, Bottleneck::Shortlist, small, "classify.workers");
    let (gpu, cpu) = (tokenizing(waits()), tokenizing(run("cpu", WAITS)));
    assert_limit(&gpu, Bottleneck::Tokenizer, "cores than the 8", "--threads");
    assert_limit(&cpu, Bottleneck::Tokenizer, "`--threads 7`", "more cores");
}

#[test]
fn advice_covers_slow_writes_and_batches_that_starve_the_gpu() {
    let (more, disk) = ("`classify.workers` = 2", "local disk");
    assert_limit(&on_gpu(BLOCKED, 50.0, 85), Bottleneck::Writing, more, disk);
    let sqlite = on_sqlite(run("cpu", BLOCKED));
    assert_limit(&sqlite, Bottleneck::Writing, disk, "classify.workers");
    let batches = on_gpu(NEVER_WAITS, 60.0, 85);
    assert_limit(&batches, Bottleneck::Batches, more, "classify.batch_tokens");
}

#[test]
fn advice_for_a_busy_engine_is_about_the_model() {
    let own = with(run("cpu", NEVER_WAITS), |run| {
        run.settings.batch_tokens_from = BudgetOrigin::Set;
        run.settings.threads = 2;
    });
    let within = on_gpu(NEVER_WAITS, 85.0, 85);
    assert_limit(&within, Bottleneck::Model, "nothing to change", "--");
    let full = on_gpu(NEVER_WAITS, 99.0, 85);
    assert_limit(
        &full,
        Bottleneck::Model,
        "`--device cuda:0,1`",
        "classify.workers",
    );
    let unmeasured = run("cuda:0", NEVER_WAITS);
    assert_limit(&unmeasured, Bottleneck::Model, "without GPU figures", "--");
    let cpu = run("cpu", NEVER_WAITS);
    assert_limit(&cpu, Bottleneck::Model, "`--precision int8`", "--threads");
    assert_limit(
        &own,
        Bottleneck::Model,
        "`--threads 0` uses all 8",
        "GPU is",
    );
    let nothing = with(run("cpu", (0.0, 1.0, 0.0)), |run| run.posts = 0);
    assert_eq!(verdict(&nothing).limit, None);
}

#[test]
fn targets_include_their_bounds_and_apply_to_every_gpu() {
    use TargetRange::{Over, Under, Within};
    for (percent, memory, expected) in [
        (74.4, 79, (Under, Under)),
        (74.6, 80, (Within, Within)),
        (95.4, 95, (Within, Within)),
        (95.6, 96, (Over, Over)),
    ] {
        let found = verdict(&on_gpu(NEVER_WAITS, percent, memory));
        let GpuTargets { gpu, memory, .. } = &found.gpus[0];
        assert_eq!((*gpu, *memory), (Some(expected.0), Some(expected.1)));
        assert_eq!(found.on_target, Some(expected == (Within, Within)));
    }
    let mut run = on_gpu(NEVER_WAITS, 90.0, 85);
    run.gpu.push(figures(40.0, 85));
    run.settings.devices = vec!["cuda:0".into(), "cuda:1".into()];
    let found = verdict(&run);
    assert_eq!(found.on_target, Some(false));
    // The advice is about the least busy GPU, and each GPU gets a second engine.
    let advice = &found.advice[0];
    assert!(
        advice.contains("40 % of the time") && advice.contains("= 4"),
        "{advice}"
    );
    run.gpu[1].gpu_percent = None;
    assert_eq!(verdict(&run).on_target, None, "a GPU without figures");
}

#[test]
fn advice_covers_memory_and_unreliable_figures() {
    let by = |from| {
        with(on_gpu(NEVER_WAITS, 85.0, 40), |run| {
            run.settings.batch_tokens_from = from;
        })
    };
    let good = || on_gpu(NEVER_WAITS, 85.0, 85);
    let noted = with(good(), |run| run.gpu_note = Some("NVML is away".into()));
    for (run, expected) in [
        (by(BudgetOrigin::Searched), "were the fastest size"),
        (by(BudgetOrigin::Default), "is not always faster"),
        (on_gpu(WAITS, 50.0, 40), "larger batches would not help"),
        (on_gpu(NEVER_WAITS, 85.0, 97), "Memory is tight, 97 %"),
        (
            with(good(), |run| run.gpu[0].samples = 4),
            "fewer than 5 times",
        ),
        (with(good(), |run| run.seconds = 9.0), "only 9.0 s"),
        (noted, "NVML is away"),
    ] {
        let advice = verdict(&run).advice[1..].join(" ");
        assert!(advice.contains(expected), "{expected}: {advice}");
    }
    assert_eq!(verdict(&good()).advice.len(), 1);
}

#[test]
fn gpu_figures_fit_in_one_line() {
    let head = "cuda:0 NVIDIA H100: ";
    let bad = "GPU 60 %, memory 97 of 100 GiB, 412 W: GPU under 75 %, memory over 95 %";
    assert_eq!(gpu_line(&figures(60.0, 97)), format!("{head}{bad}"));
    assert!(gpu_line(&figures(87.0, 85)).ends_with(", 412 W: on target"));
    let unmeasured = GpuUsage {
        gpu: figures(0.0, 0).gpu,
        ..GpuUsage::default()
    };
    assert_eq!(gpu_line(&unmeasured), format!("{head}no figures"));
}
