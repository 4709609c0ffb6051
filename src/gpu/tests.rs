//! Tests the summaries of samples, the mapping of CUDA device numbers, and sampling with a fake NVML library.

use std::sync::Mutex;

use super::*;
use topicmill_core::clock::ManualClock;

fn reading(percent: u32, used: u32, watts: u32) -> GpuReading {
    GpuReading {
        gpu_percent: Some(percent),
        memory_mib: Some((used, 81_920)),
        watts: Some(watts),
    }
}

#[test]
fn samples_become_mean_median_p95_and_maximum() {
    let mut tally = Tally::default();
    for percent in (1..=100).rev() {
        tally.add(&reading(percent, 40_960, 400));
    }
    tally.add(&GpuReading::default());
    let found = tally.figures(&Gpu::default());
    let percent = found.gpu_percent.unwrap();
    assert_eq!(
        percent,
        Summary {
            mean: 50.5,
            median: 50,
            p95: 95,
            max: 100
        }
    );
    assert_eq!((found.samples, found.memory_total_mib), (101, 81_920));
    assert_eq!(found.memory_percent(), Some(50.0));
    assert_eq!(found.watts.unwrap().median, 400);
    // Values are weighted by how often they occur.
    let mut tally = Tally::default();
    for percent in [90, 90, 90, 10] {
        tally.add(&reading(percent, 0, 0));
    }
    let percent = tally.figures(&Gpu::default()).gpu_percent.unwrap();
    assert_eq!((percent.mean, percent.median, percent.p95), (70.0, 90, 90));
}

#[test]
fn the_line_shows_the_available_figures() {
    let one = reading(87, 62_464, 412);
    assert_eq!(line(&[one]), "GPU 87 % · 61 of 80 GiB · 412 W");
    let other = reading(90, 81_920, 600);
    assert_eq!(line(&[one, other]), "2 GPUs 89 % · 141 of 160 GiB · 1012 W");
    let without_figures = GpuReading::default();
    assert_eq!(
        line(&[one, without_figures]),
        "2 GPUs 87 % · 61 of 80 GiB · 412 W",
        "a GPU without figures does not count"
    );
    assert_eq!(line(&[without_figures]), "GPU");
}

#[test]
fn cuda_device_numbers_map_to_nvml_indices() {
    let uuids = ["GPU-aa11", "GPU-bb22", "GPU-bb33"];
    for (number, visible, found) in [
        (0, None, Some(0)),
        (2, None, Some(2)),
        (3, None, None),
        (0, Some("2,0"), Some(2)),
        (1, Some("2, 0"), Some(0)),
        (2, Some("2,0"), None),
        (0, Some("GPU-bb3"), Some(2)),
        (1, Some("GPU-bb3,GPU-aa11"), Some(0)),
        // The prefix is ambiguous.
        (0, Some("GPU-bb"), None),
        // CUDA ignores everything after an unknown entry.
        (0, Some("1,-1,2"), Some(1)),
        (1, Some("1,-1,2"), None),
        (1, Some("1,7,2"), None),
        (0, Some(""), None),
        (0, Some("MIG-aa11"), None),
    ] {
        assert_eq!(
            nvml_index(number, visible, &uuids),
            found,
            "{number} {visible:?}"
        );
    }
    assert_eq!(nvml_index(0, Some(""), &uuids[..1]), None);
}

#[test]
fn a_missing_nvml_gives_a_note_but_not_on_a_cpu() {
    let watch = GpuWatch::without_nvml();
    let note = watch.note().unwrap();
    assert!(
        note.contains("/no/libnvidia-ml.so.1") && note.contains("utility"),
        "{note}"
    );
    assert_eq!(watch.sampler().figures(), []);
    let watch = GpuWatch::for_devices(&[Device::Cpu]);
    assert!(watch.note().is_none() && watch.probe.is_none());
}

/// Compiles the fake driver of nvml.c.
fn driver() -> (tempfile::TempDir, std::path::PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let library = folder.path().join("libnvidia-ml.so.1");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/src/gpu/nvml.c");
    let compiled = std::process::Command::new("cc")
        .args(["-shared", "-fPIC", "-o"])
        .args([library.as_path(), source.as_ref()])
        .status();
    assert!(compiled.unwrap().success());
    (folder, library)
}

#[test]
fn residency_is_checked_on_the_gpu_of_the_engine() {
    let (_folder, library) = driver();
    let residency = |number, visible, by_bus, has_host_pid, least| {
        let numbered = (visible, by_bus);
        residency_with(library.as_os_str(), number, numbered, has_host_pid, least)
    };
    assert_eq!(residency(0, None, true, true, 1 << 30), Residency::Resident);
    assert_eq!(
        residency(1, None, true, true, 1 << 30),
        Residency::NotResident
    );
    assert_eq!(
        residency(0, Some("1"), true, true, 1 << 30),
        Residency::NotResident
    );
    // With GPUs of several kinds, either may be CUDA device 1.
    assert_eq!(
        residency(1, None, false, true, 1 << 30),
        Residency::Resident
    );
    // In a container, any listed pid may be this process. But a model of 100 GiB cannot be in the 61 GiB in use.
    assert_eq!(residency(1, None, true, false, 1 << 30), Residency::Unknown);
    assert_eq!(
        residency(1, None, true, false, 100 << 30),
        Residency::NotResident
    );
    assert_eq!(residency(5, None, true, true, 0), Residency::Unknown);
    let nowhere = std::ffi::OsStr::new("/no/libnvidia-ml.so.1");
    assert_eq!(
        residency_with(nowhere, 0, (None, true), true, 0),
        Residency::Unknown
    );
}

#[test]
fn nvml_samples_the_gpus_visible_to_cuda() {
    let (_folder, library) = driver();
    let with = |devices: &[Device], visible, by_bus| {
        GpuWatch::with(library.as_os_str(), devices, visible, by_bus)
    };
    let read = |watch: &GpuWatch| watch.probe.as_ref().unwrap().read();

    let [first, second] = [0, 1].map(|n| with(&[Device::Cuda(n), Device::Cuda(n)], None, true));
    assert_eq!(
        (first.note(), read(&first)),
        (None, vec![reading(50, 61_440, 412)])
    );
    let [gpu] = &second.gpus[..] else {
        panic!("one GPU is sampled, however many engines use it")
    };
    assert_eq!(
        (&*gpu.device, &*gpu.name, &*gpu.uuid),
        ("cuda:1", "Make 1", "GPU-111")
    );
    assert_eq!(
        read(&second),
        [GpuReading {
            watts: None,
            ..reading(51, 62_464, 0)
        }]
    );
    let note = second.note().unwrap();
    assert!(
        note.starts_with("cuda:1: no watts, the current user does not have permission"),
        "{note}"
    );

    let by_uuid = with(&[Device::Cuda(0)], Some("GPU-11,0"), false);
    assert_eq!(by_uuid.gpus[0].name, "Make 1");
    assert!(
        !by_uuid.note().unwrap().contains("several kinds"),
        "{by_uuid:?}"
    );
    // One of the two does not exist; the index of the other is a guess.
    let two = with(&[Device::Cuda(0), Device::Cuda(1)], Some("0,5"), false);
    assert_eq!(read(&two), [reading(50, 61_440, 412)]);
    let note = two.note().unwrap();
    assert!(
        note.contains("several kinds") && note.contains("cuda:1 is not among the full GPUs"),
        "{note}"
    );
}

/// Returns its readings one after another, the last one first, then empty readings.
#[derive(Debug)]
struct ScriptedProbe(Mutex<Vec<GpuReading>>);

impl Probe for ScriptedProbe {
    fn read(&self) -> Vec<GpuReading> {
        vec![self.0.lock().unwrap().pop().unwrap_or_default()]
    }
}

#[tokio::test]
async fn gpus_are_sampled_every_two_seconds_until_the_work_ends() {
    let readings = vec![reading(80, 61_440, 500), reading(60, 40_960, 300)];
    let gpu = Gpu {
        device: "cuda:3".into(),
        ..Gpu::default()
    };
    let watch = GpuWatch::by(
        vec![gpu.clone()],
        Arc::new(ScriptedProbe(Mutex::new(readings))),
    );
    let mut sampler = watch.sampler();
    let manual = ManualClock::at(chrono::DateTime::from_timestamp(1_750_000_000, 0).unwrap());
    let clock: SharedClock = manual.clone();
    let (lines, mut received) = tokio::sync::mpsc::unbounded_channel();
    let done = async {
        let mut first = Vec::new();
        while first.len() < 2 {
            first.extend(received.recv().await);
        }
        first
    };
    let first = tokio::select! {
        first = done => first,
        never = sampler.sample(&clock, |line, _| drop(lines.send(line))) => match never {},
    };
    assert_eq!(
        first,
        [
            "GPU 60 % · 40 of 80 GiB · 300 W",
            "GPU 80 % · 60 of 80 GiB · 500 W"
        ]
    );
    assert_eq!(manual.sleeps()[..2], [INTERVAL, INTERVAL]);
    let figures = sampler.figures();
    assert_eq!(figures[0].gpu, gpu);
    let percent = figures[0].gpu_percent.unwrap();
    assert_eq!((percent.mean, percent.max), (70.0, 80));
}
