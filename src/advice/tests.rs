//! Runs of every kind, and what is said of them.

use super::*;
use crate::record::{Gpu, RunSettings, Stages, Summary};

/// A run of a minute on one engine that computes, waits for posts and waits for the writer for so many seconds.
fn run(device: &str, (busy, idle, blocked): (f64, f64, f64)) -> Labelled {
    Labelled {
        posts: 1_000,
        seconds: 60.0,
        stages: Stages {
            engine_busy_secs: busy,
            engine_idle_secs: idle,
            engine_blocked_secs: blocked,
            claim_secs: 20.0,
            look_up_secs: 3.0,
            shortlist_secs: 0.0,
            tokenize_secs: 10.0,
            write_secs: 5.0,
        },
        settings: RunSettings {
            runtime: "OpenVINO 2026.4.1".into(),
            model: "m".into(),
            devices: vec![device.into()],
            precision: "fp32".into(),
            batch_tokens: 16_384,
            batch_tokens_from: BudgetOrigin::Searched,
            threads: 8,
            cores: 8,
            database: "postgres".into(),
        },
        ..Labelled::default()
    }
}

const NEVER_WAITS: (f64, f64, f64) = (99.0, 0.5, 0.5);

fn figures(percent: f64, memory_percent: u32) -> GpuFigures {
    let summary = |value: u32| Summary {
        mean: value.into(),
        median: value,
        p95: value,
        max: value,
    };
    GpuFigures {
        gpu: Gpu {
            device: "cuda:0".into(),
            name: "NVIDIA H100".into(),
            uuid: "GPU-1".into(),
        },
        samples: 30,
        gpu_percent: Some(Summary {
            mean: percent,
            ..Summary::default()
        }),
        memory_mib: Some(summary(1024 * memory_percent)),
        memory_total_mib: 1024 * 100,
        watts: Some(summary(412)),
    }
}

fn on_gpu(stages: (f64, f64, f64), percent: f64, memory_percent: u32) -> Labelled {
    Labelled {
        gpu: vec![figures(percent, memory_percent)],
        ..run("cuda:0", stages)
    }
}

/// What a run does, the run, what limits it, what is said of it and what is not.
type Case = (
    &'static str,
    Labelled,
    Option<Slow>,
    Vec<&'static str>,
    Vec<&'static str>,
);

fn check(cases: Vec<Case>) {
    for (what, run, limit, says, does_not_say) in cases {
        let found = verdict(&run);
        let advice = found.advice.join(" ");
        assert_eq!(found.limit, limit, "a run that {what}");
        for part in says {
            assert!(
                advice.contains(part),
                "a run that {what}: no `{part}` in {advice}"
            );
        }
        for part in does_not_say {
            assert!(
                !advice.contains(part),
                "a run that {what}: `{part}` in {advice}"
            );
        }
        assert_eq!(found.on_target.is_some(), !run.gpu.is_empty(), "{what}");
    }
}

#[test]
fn the_slow_stage_is_named_with_what_to_change() {
    let waits = (60.0, 40.0, 0.0);
    let blocked = (60.0, 0.0, 40.0);
    let sqlite = |run: Labelled| with(run, |run| run.settings.database = "sqlite".into());
    let tokenizing = |run: Labelled| with(run, |run| run.stages.tokenize_secs = 30.0);
    check(vec![
        (
            "waits for a server",
            on_gpu(waits, 50.0, 85),
            Some(Slow::Reading),
            vec![
                "waits for posts 40 %",
                "claiming 20.0 s",
                "`classify.workers` = 2",
            ],
            vec!["local disk", "--threads"],
        ),
        (
            "waits for a file",
            sqlite(on_gpu(waits, 50.0, 85)),
            Some(Slow::Reading),
            vec!["waits for posts 40 %", "local disk"],
            vec!["classify.workers"],
        ),
        (
            "waits for the small model",
            with(on_gpu(waits, 50.0, 85), |run| {
                run.stages.shortlist_secs = 31.0;
            }),
            Some(Slow::Shortlist),
            vec!["the small model 31.0 s", "--small-model"],
            vec!["--threads", "classify.workers"],
        ),
        (
            "waits for the tokenizer",
            tokenizing(on_gpu(waits, 50.0, 85)),
            Some(Slow::Tokenizer),
            vec!["tokenising 30.0 s", "more cores than the 8"],
            vec!["--threads", "classify.workers"],
        ),
        (
            "waits for the tokenizer on a CPU",
            tokenizing(run("cpu", waits)),
            Some(Slow::Tokenizer),
            vec!["tokenising 30.0 s", "`--threads 7`"],
            vec!["more cores"],
        ),
        (
            "waits for the writer to a server",
            on_gpu(blocked, 50.0, 85),
            Some(Slow::Writing),
            vec![
                "waits 40 % of the time until labels",
                "5.0 s of writing",
                "`classify.workers` = 2",
            ],
            vec!["local disk"],
        ),
        (
            "waits for the writer to a file",
            sqlite(on_gpu(blocked, 50.0, 85)),
            Some(Slow::Writing),
            vec!["5.0 s of writing", "local disk"],
            vec!["classify.workers"],
        ),
    ]);
}

#[test]
fn a_model_that_never_waits_is_told_how_it_gets_faster() {
    let by = |run: Labelled, from| with(run, |run| run.settings.batch_tokens_from = from);
    let slow = Some(Slow::Model);
    check(vec![
        (
            "makes batches",
            on_gpu(NEVER_WAITS, 60.0, 85),
            Some(Slow::Batches),
            vec!["for 60 % of the time only", "`classify.workers` = 2"],
            vec!["classify.batch_tokens"],
        ),
        (
            "makes batches of a size that nobody searched",
            by(on_gpu(NEVER_WAITS, 60.0, 85), BudgetOrigin::Default),
            Some(Slow::Batches),
            vec![
                "for 60 % of the time only",
                "`classify.batch_tokens`",
                "`classify.workers` = 2",
            ],
            vec![],
        ),
        (
            "is as it should be",
            on_gpu(NEVER_WAITS, 85.0, 85),
            slow,
            vec!["nothing to change"],
            vec!["--"],
        ),
        (
            "is full",
            on_gpu(NEVER_WAITS, 99.0, 85),
            slow,
            vec!["the GPU is full", "`--device cuda:0,1`"],
            vec!["classify.workers", "classify.batch_tokens"],
        ),
        (
            "is on a GPU that tells nothing",
            run("cuda:0", NEVER_WAITS),
            slow,
            vec!["cannot be told"],
            vec!["--"],
        ),
        (
            "is on a CPU",
            run("cpu", NEVER_WAITS),
            slow,
            vec![
                "faster than it computes",
                "`--precision int8`",
                "`--device cuda`",
            ],
            vec!["classify.batch_tokens", "--threads", "GPU is"],
        ),
        (
            "is on a CPU with a budget and threads of its own",
            with(by(run("cpu", NEVER_WAITS), BudgetOrigin::Set), |run| {
                run.settings.threads = 2;
            }),
            slow,
            vec!["`classify.batch_tokens`", "`--threads 0` takes all 8"],
            vec![],
        ),
        (
            "finds no posts",
            with(run("cpu", (0.0, 1.0, 0.0)), |run| run.posts = 0),
            None,
            vec!["computed nothing"],
            vec!["--"],
        ),
        (
            "computes nothing",
            Labelled::default(),
            None,
            vec!["computed nothing"],
            vec!["--"],
        ),
    ]);
}

fn with(mut run: Labelled, change: impl FnOnce(&mut Labelled)) -> Labelled {
    change(&mut run);
    run
}

#[test]
fn the_targets_are_met_at_their_borders() {
    use Stand::{Over, Under, Within};
    for (percent, memory, gpu, of_memory) in [
        (74.4, 79, Under, Under),
        (74.6, 80, Within, Within),
        (95.4, 95, Within, Within),
        (95.6, 96, Over, Over),
    ] {
        let found = verdict(&on_gpu(NEVER_WAITS, percent, memory));
        assert_eq!(
            (found.gpus[0].gpu, found.gpus[0].memory),
            (Some(gpu), Some(of_memory)),
            "{percent} {memory}"
        );
        let both = gpu == Within && of_memory == Within;
        assert_eq!(found.on_target, Some(both), "{percent} {memory}");
    }
}

#[test]
fn every_gpu_counts_and_the_idlest_is_spoken_of() {
    let mut run = on_gpu(NEVER_WAITS, 90.0, 85);
    run.gpu.push(figures(40.0, 85));
    run.settings.devices = vec!["cuda:0".into(), "cuda:1".into()];
    let found = verdict(&run);
    assert_eq!(found.on_target, Some(false));
    // One more for each.
    assert!(
        found.advice[0].contains("for 40 %") && found.advice[0].contains("`classify.workers` = 4"),
        "{found:?}"
    );
    run.gpu[1].gpu_percent = None;
    assert_eq!(verdict(&run).on_target, None, "a GPU that does not tell");
}

#[test]
fn memory_is_no_aim_by_itself() {
    let said = |run: &Labelled| verdict(run).advice[1..].join(" ");
    let mut run = on_gpu(NEVER_WAITS, 85.0, 40);
    let searched = said(&run);
    assert!(
        searched.contains("used to 40 %")
            && searched.contains("16384 padded tokens were the fastest")
            && !searched.contains("classify.batch_tokens"),
        "{searched}"
    );
    run.settings.batch_tokens_from = BudgetOrigin::Default;
    let open = said(&run);
    assert!(open.contains("pays only if it is faster"), "{open}");
    let starved = said(&on_gpu((60.0, 40.0, 0.0), 50.0, 40));
    assert!(
        starved.contains("larger batches would not help"),
        "{starved}"
    );
    let tight = said(&on_gpu(NEVER_WAITS, 85.0, 97));
    assert!(tight.contains("Memory is tight, 97 %"), "{tight}");
    assert_eq!(said(&on_gpu(NEVER_WAITS, 85.0, 85)), "");
}

#[test]
fn what_makes_a_verdict_doubtful_is_told() {
    let last = |run: &Labelled| verdict(run).advice.last().unwrap().clone();
    let mut run = on_gpu(NEVER_WAITS, 85.0, 85);
    run.gpu[0].samples = 4;
    assert!(last(&run).contains("fewer than 5 times"), "{run:?}");
    run.seconds = 9.0;
    assert!(last(&run).contains("only 9.0 s"), "{run:?}");
    run.gpu_note = Some("NVML cannot be asked".into());
    assert!(last(&run).contains("NVML cannot be asked"), "{run:?}");
}

#[test]
fn a_gpu_is_told_in_one_line() {
    let told = |percent, memory| line(&figures(percent, memory));
    assert_eq!(
        told(87.0, 85),
        "cuda:0 NVIDIA H100: GPU 87 %, memory 85 of 100 GiB, 412 W: on target"
    );
    assert_eq!(
        told(60.0, 97),
        "cuda:0 NVIDIA H100: GPU 60 %, memory 97 of 100 GiB, 412 W: GPU under 75 %, memory over 95 %"
    );
    let dumb = GpuFigures {
        gpu: figures(0.0, 0).gpu,
        ..GpuFigures::default()
    };
    assert_eq!(line(&dumb), "cuda:0 NVIDIA H100: no figures");
}
