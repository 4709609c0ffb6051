//! Samples GPUs while a run labels.

use super::*;

/// Says the same each time.
#[derive(Debug)]
struct Busy;

impl Probe for Busy {
    fn read(&self) -> Vec<GpuReading> {
        vec![GpuReading {
            gpu_percent: Some(90),
            ..GpuReading::default()
        }]
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_gpus_do_meanwhile_is_told_and_recorded_also_of_a_run_that_fails() {
    let clock = ManualClock::at(chrono::DateTime::from_timestamp(1_750_000_000, 0).unwrap());
    let scene = Scene::with_posts(20, clock).await;
    let heard = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let seen = Arc::clone(&heard);
    // Computes nothing until the GPU was heard of, or for long enough.
    let engine = move |_| {
        for _ in 0..10_000 {
            if seen.load(Ordering::Relaxed) {
                break;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Err(EngineError::Run("the device is gone".into()))
    };
    let engine = Box::new(Asking(ScriptedEngine::default(), 0, engine));
    let labelers = vec![models(engine)];
    let options = Options {
        settings: RunSettings {
            cores: 7,
            ..RunSettings::default()
        },
        gpus: GpuWatch::by(vec![Gpu::default()], Arc::new(Busy)),
        ..options()
    };
    let listen = |step| {
        if step == LabelStep::Gpu("GPU 90 %".into()) {
            heard.store(true, Ordering::Relaxed);
        }
    };
    let labels = set(&["food"]);
    let labelled = scene.label_hearing(labelers, &labels, options, &listen);
    let (ended, done) = labelled.await;
    assert!(ended.is_err());
    assert!(heard.load(Ordering::Relaxed));
    assert!(done.gpu[0].samples > 0, "{done:?}");
    assert_eq!(done.gpu[0].gpu_percent.unwrap().max, 90);
    assert_eq!((done.settings.cores, done.settings.batch_tokens), (7, 512));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gpu_that_cannot_be_watched_is_a_note_in_the_record_and_no_failure() {
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
    // And a record is read as it was written.
    let read: ClassifyCounts = serde_json::from_value(record).unwrap();
    assert_eq!((read.posts, read.gpu_note), (20, done.gpu_note));
}
