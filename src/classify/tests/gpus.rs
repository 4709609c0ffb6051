//! Sampling of GPUs while a run labels.

use super::*;

/// Reports a GPU that is always 90 % busy.
#[derive(Debug)]
struct BusyGpu;

impl Probe for BusyGpu {
    fn read(&self) -> Vec<GpuReading> {
        vec![GpuReading {
            gpu_percent: Some(90),
            ..GpuReading::default()
        }]
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn gpu_samples_are_reported_and_recorded_even_if_the_run_fails() {
    let clock = ManualClock::at(chrono::DateTime::from_timestamp(1_750_000_000, 0).unwrap());
    let scene = Scene::with_posts(20, clock).await;
    let reported = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let seen = Arc::clone(&reported);
    // Waits at most ten seconds for a GPU sample.
    let engine = move |_| {
        for _ in 0..10_000 {
            if seen.load(Ordering::Relaxed) {
                break;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Err(EngineError::Run("the device is gone".into()))
    };
    let engine = Box::new(HookedEngine(ScriptedEngine::default(), 0, engine));
    let labelers = vec![models(engine)];
    let options = Options {
        settings: RunSettings {
            cores: 7,
            ..RunSettings::default()
        },
        gpus: GpuWatch::by(vec![Gpu::default()], Arc::new(BusyGpu)),
        ..options()
    };
    let progress = |step| {
        if step == LabelStep::Gpu("GPU 90 %".into()) {
            reported.store(true, Ordering::Relaxed);
        }
    };
    let labels = set(&["food"]);
    let labelled = scene.label_with_progress(labelers, &labels, options, &progress);
    let (ended, done) = labelled.await;
    assert!(ended.is_err());
    assert!(reported.load(Ordering::Relaxed));
    assert!(done.gpu[0].samples > 0, "{done:?}");
    assert_eq!(done.gpu[0].gpu_percent.unwrap().max, 90);
    assert_eq!((done.settings.cores, done.settings.batch_tokens), (7, 512));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_nvml_is_noted_in_the_record_and_does_not_fail_the_run() {
    let scene = Scene::with_posts(20, topicmill_core::clock::SystemClock::shared()).await;
    let options = Options {
        gpus: GpuWatch::without_nvml(),
        ..options()
    };
    let engine = Box::new(ScriptedEngine::default());
    let labels = set(&["food"]);
    let (ended, done) = scene.label_with(vec![engine], &labels, options).await;
    ended.unwrap();
    assert_eq!((done.posts, done.gpu.len()), (20, 0));
    let record = serde_json::to_value(&done).unwrap();
    let note = record["gpu_note"].as_str().unwrap();
    assert!(note.contains("NVML is not available"), "{note}");
    // The record survives a round trip through JSON.
    let read: ClassifyCounts = serde_json::from_value(record).unwrap();
    assert_eq!((read.posts, read.gpu_note), (20, done.gpu_note));
}
