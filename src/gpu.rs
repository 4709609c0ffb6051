//! Samples GPU utilisation, memory and power from NVML every two seconds while engines compute.
//!
//! [`GpuWatch::for_devices`] finds the GPUs of the engines; a GPU that cannot be sampled becomes a note in the run
//! record, never an error. The samples are summarised as mean, median, 95th percentile and maximum ([`GpuUsage`]).
//! [`check_residency`] checks once, after loading, that a model is on the GPU.

mod residency;

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::ffi::OsStr;
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use nvml_wrapper::Nvml;
use nvml_wrapper::error::NvmlError;

pub use self::residency::Residency;
use self::residency::{ListedGpu, has_host_pid, verdict};
use topicmill_core::clock::SharedClock;
use topicmill_core::record::{Gpu, GpuSample, GpuUsage, Summary, gib};
use topicmill_score::engine::Device;

/// Sampling interval. NVML averages over up to a second, so a shorter interval would add little.
const INTERVAL: Duration = Duration::from_secs(2);
/// The NVML library, which is part of the driver.
const LIBRARY: &str = if cfg!(windows) {
    "nvml.dll"
} else {
    "libnvidia-ml.so.1"
};

/// A sample of one GPU; `None` for a figure that the driver does not report.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct GpuReading {
    /// Utilisation: the percentage of NVML's last sampling period in which a kernel ran.
    pub gpu_percent: Option<u32>,
    /// Memory in use by any process, and total memory, in MiB.
    pub memory_mib: Option<(u32, u32)>,
    /// Power draw in watts.
    pub watts: Option<u32>,
}

/// Samples all watched GPUs, in their order.
pub trait Probe: Debug + Send + Sync {
    /// Returns one reading per GPU.
    fn read(&self) -> Vec<GpuReading>;
}

/// The GPUs to sample during a run; by default none.
#[derive(Debug, Clone, Default)]
pub struct GpuWatch {
    gpus: Vec<Gpu>,
    probe: Option<Arc<dyn Probe>>,
    note: Option<String>,
}

impl GpuWatch {
    /// Finds the GPUs among the devices of engines. Does not load NVML if there are none.
    pub fn for_devices(devices: &[Device]) -> Self {
        let (visible, by_bus) = numbering();
        Self::with(LIBRARY.as_ref(), devices, visible.as_deref(), by_bus)
    }

    fn with(library: &OsStr, devices: &[Device], visible: Option<&str>, by_bus: bool) -> Self {
        let numbers: BTreeSet<u16> = devices
            .iter()
            .filter_map(|device| match device {
                Device::Cuda(number) => Some(*number),
                Device::Cpu | Device::Auto => None,
            })
            .collect();
        if numbers.is_empty() {
            return Self::default();
        }
        let (all, nvml) = match open_nvml(library) {
            Ok(all) => all,
            Err(error) => {
                let note = format!(
                    "NVML is not available: {error}; in a container, NVIDIA_DRIVER_CAPABILITIES must include `utility`"
                );
                return Self {
                    note: Some(note),
                    ..Self::default()
                };
            }
        };
        let mut notes = Vec::new();
        if !is_order_known(&all, visible, by_bus) {
            notes.push(
                "with GPUs of several kinds, CUDA and NVML may number them differently: set \
                 CUDA_DEVICE_ORDER=PCI_BUS_ID"
                    .to_owned(),
            );
        }
        let uuids: Vec<&str> = all.iter().map(|(_, uuid)| uuid.as_str()).collect();
        let (mut gpus, mut places) = (Vec::new(), Vec::new());
        for number in numbers {
            let device = Device::Cuda(number).to_string();
            let Some(place) = nvml_index(number, visible, &uuids) else {
                notes.push(format!(
                    "{device} is not among the full GPUs that NVML lists"
                ));
                continue;
            };
            let (_, refused) = read_gpu(&nvml, place);
            notes.extend(refused.iter().map(|what| format!("{device}: {what}")));
            let (name, uuid) = all[place].clone();
            gpus.push(Gpu { device, name, uuid });
            places.push(place);
        }
        Self {
            gpus,
            probe: (!places.is_empty())
                .then(|| Arc::new(Nvidia { nvml, places }) as Arc<dyn Probe>),
            note: (!notes.is_empty()).then(|| notes.join("; ")),
        }
    }

    /// Watches GPUs with a test probe.
    #[cfg(test)]
    pub(crate) fn by(gpus: Vec<Gpu>, probe: Arc<dyn Probe>) -> Self {
        Self {
            gpus,
            probe: Some(probe),
            note: None,
        }
    }

    /// Watches a GPU on a machine without NVML.
    #[cfg(test)]
    pub(crate) fn without_nvml() -> Self {
        Self::with(
            "/no/libnvidia-ml.so.1".as_ref(),
            &[Device::Cuda(0)],
            None,
            false,
        )
    }

    /// Returns what is missing or unreliable, and why.
    pub fn note(&self) -> Option<&str> {
        self.note.as_deref()
    }

    /// Creates a sampler without samples.
    pub(crate) fn sampler(&self) -> Sampler {
        Sampler {
            tallies: vec![Tally::default(); self.gpus.len()],
            watch: self.clone(),
        }
    }
}

/// Returns `CUDA_VISIBLE_DEVICES`, and whether CUDA numbers GPUs by bus id, as NVML does.
fn numbering() -> (Option<String>, bool) {
    let by_bus = std::env::var("CUDA_DEVICE_ORDER").is_ok_and(|order| order == "PCI_BUS_ID");
    (std::env::var("CUDA_VISIBLE_DEVICES").ok(), by_bus)
}

/// Loads NVML and lists its GPUs.
// Loaded on demand: most machines have no such library.
fn open_nvml(library: &OsStr) -> Result<(Vec<(String, String)>, Nvml), NvmlError> {
    let nvml = Nvml::builder().lib_path(library).init()?;
    Ok((list(&nvml)?, nvml))
}

/// Returns true if CUDA numbers the GPUs as NVML does. By default, CUDA lists the fastest GPU first.
fn is_order_known(all: &[(String, String)], visible: Option<&str>, by_bus: bool) -> bool {
    let kinds: BTreeSet<&String> = all.iter().map(|(name, _)| name).collect();
    kinds.len() < 2 || by_bus || visible.is_some_and(|names| names.contains("GPU-"))
}

/// Checks with NVML that this process holds memory on CUDA device `number`, after it loaded a model of at least `least`
/// bytes there. Returns `Unknown` if NVML is missing or does not report it.
pub fn check_residency(number: u16, least: u64) -> Residency {
    let (visible, by_bus) = numbering();
    let numbered = (visible.as_deref(), by_bus);
    residency_with(LIBRARY.as_ref(), number, numbered, has_host_pid(), least)
}

fn residency_with(
    library: &OsStr,
    number: u16,
    (visible, by_bus): (Option<&str>, bool),
    has_host_pid: bool,
    least: u64,
) -> Residency {
    let Ok((all, nvml)) = open_nvml(library) else {
        return Residency::Unknown;
    };
    let uuids: Vec<&str> = all.iter().map(|(_, uuid)| uuid.as_str()).collect();
    let places = match nvml_index(number, visible, &uuids) {
        Some(place) if is_order_known(&all, visible, by_bus) => place..place + 1,
        Some(_) => 0..all.len(),
        // A MIG slice, which NVML does not report here.
        None => return Residency::Unknown,
    };
    let listed: Vec<ListedGpu> = places.map(|place| list_processes(&nvml, place)).collect();
    verdict(&listed, std::process::id(), has_host_pid, least)
}

/// Lists the processes that hold memory on a GPU, and the memory in use.
fn list_processes(nvml: &Nvml, place: usize) -> ListedGpu {
    let gpu = || nvml.device_by_index(u32::try_from(place).unwrap_or(u32::MAX));
    let processes = gpu().and_then(|gpu| {
        let mut all = gpu.running_compute_processes()?;
        // Under MPS, NVIDIA's multi-process service, clients have a separate list.
        match gpu.mps_running_compute_processes() {
            Ok(clients) => all.extend(clients),
            // The driver has no MPS.
            Err(NvmlError::FailedToLoadSymbol(_) | NvmlError::NotSupported) => {}
            // The list is incomplete.
            Err(error) => return Err(error),
        }
        Ok(all.into_iter().map(|process| process.pid).collect())
    });
    let memory = gpu().and_then(|gpu| gpu.memory_info());
    ListedGpu {
        processes: processes.ok(),
        used: memory.ok().map(|memory| memory.used),
    }
}

/// Lists the name and UUID of every GPU in NVML's order. An inaccessible GPU keeps its place.
fn list(nvml: &Nvml) -> Result<Vec<(String, String)>, NvmlError> {
    let name_and_uuid = |index| {
        let gpu = nvml.device_by_index(index)?;
        Ok::<_, NvmlError>((gpu.name()?, gpu.uuid()?))
    };
    let count = nvml.device_count()?;
    Ok((0..count)
        .map(|index| name_and_uuid(index).unwrap_or_default())
        .collect())
}

/// Maps a CUDA device number to NVML's index. `visible` is `CUDA_VISIBLE_DEVICES`: numbers or prefixes of UUIDs; CUDA
/// ignores everything after the first unknown one.
fn nvml_index(number: u16, visible: Option<&str>, uuids: &[&str]) -> Option<usize> {
    let Some(visible) = visible else {
        return Some(usize::from(number)).filter(|place| *place < uuids.len());
    };
    let named = |name: &str| {
        if let Ok(place) = name.parse() {
            return Some(place).filter(|place| *place < uuids.len());
        }
        let mut places = (0..uuids.len())
            .filter(|place| name.starts_with("GPU-") && uuids[*place].starts_with(name));
        places.next().filter(|_| places.next().is_none())
    };
    // `map_while`, as CUDA does: the first unknown name hides all after it.
    let mut places = visible.split(',').map_while(|name| named(name.trim()));
    places.nth(number.into())
}

/// GPUs at their indices in NVML's list.
#[derive(Debug)]
struct Nvidia {
    nvml: Nvml,
    places: Vec<usize>,
}

impl Probe for Nvidia {
    fn read(&self) -> Vec<GpuReading> {
        let places = self.places.iter();
        places.map(|place| read_gpu(&self.nvml, *place).0).collect()
    }
}

/// Samples a GPU. Also returns what the driver refused to report, and why.
fn read_gpu(nvml: &Nvml, place: usize) -> (GpuReading, Vec<String>) {
    let index = u32::try_from(place).unwrap_or(u32::MAX);
    let gpu = || nvml.device_by_index(index);
    let mib = |bytes: u64| u32::try_from(bytes >> 20).unwrap_or(u32::MAX);
    let gpu_percent = gpu().and_then(|gpu| Ok(gpu.utilization_rates()?.gpu));
    let memory_mib = gpu().and_then(|gpu| gpu.memory_info());
    let watts = gpu().and_then(|gpu| Ok((gpu.power_usage()? + 500) / 1000));
    let refused = [
        ("GPU %", gpu_percent.as_ref().err()),
        ("memory", memory_mib.as_ref().err()),
        ("watts", watts.as_ref().err()),
    ];
    let refused = refused.into_iter();
    let refused = refused.filter_map(|(what, error)| Some(format!("no {what}, {}", error?)));
    let refused = refused.collect();
    let reading = GpuReading {
        gpu_percent: gpu_percent.ok(),
        memory_mib: memory_mib.ok().map(|all| (mib(all.used), mib(all.total))),
        watts: watts.ok(),
    };
    (reading, refused)
}

/// Samples GPUs at intervals and accumulates the samples.
#[derive(Debug)]
pub(crate) struct Sampler {
    watch: GpuWatch,
    tallies: Vec<Tally>,
}

impl Sampler {
    /// Samples until dropped. Calls `on_sample` for each sample, with a display line and each GPU's sample.
    pub(crate) async fn sample(
        &mut self,
        clock: &SharedClock,
        on_sample: impl Fn(String, Vec<GpuSample>),
    ) -> Infallible {
        while let Some(probe) = self.watch.probe.clone() {
            clock.sleep(INTERVAL).await;
            // On a blocking thread, because a faulty driver may block.
            let Ok(readings) = tokio::task::spawn_blocking(move || probe.read()).await else {
                break;
            };
            for (tally, reading) in self.tallies.iter_mut().zip(&readings) {
                tally.add(reading);
            }
            let pairs = self.watch.gpus.iter().zip(&readings);
            let now = pairs.map(|(gpu, reading)| GpuSample {
                device: gpu.device.clone(),
                gpu_percent: reading.gpu_percent,
                memory_mib: reading.memory_mib,
                watts: reading.watts,
            });
            on_sample(line(&readings), now.collect());
        }
        // The sampler runs concurrently with other work, which the sampler must not end.
        std::future::pending().await
    }

    /// Returns the summary of all samples.
    pub(crate) fn figures(&self) -> Vec<GpuUsage> {
        let pairs = self.watch.gpus.iter().zip(&self.tallies);
        pairs.map(|(gpu, tally)| tally.figures(gpu)).collect()
    }
}

/// Formats samples as `GPU 87 % · 61 of 80 GiB · 412 W`; several GPUs as mean and sums.
fn line(readings: &[GpuReading]) -> String {
    let busy: Vec<u32> = readings.iter().filter_map(|gpu| gpu.gpu_percent).collect();
    let memory = readings.iter().filter_map(|gpu| gpu.memory_mib);
    let memory = memory.reduce(|(used, total), (u, t)| (used + u, total + t));
    let watts = readings.iter().filter_map(|gpu| gpu.watts);
    let watts = watts.reduce(|sum, watts| sum + watts);
    let count = match readings.len() {
        1 => "GPU".to_owned(),
        several => format!("{several} GPUs"),
    };
    let count_busy = u32::try_from(busy.len()).unwrap_or(u32::MAX).max(1);
    let busy = match busy.iter().sum::<u32>() {
        _ if busy.is_empty() => count,
        sum => format!("{count} {} %", (sum + count_busy / 2) / count_busy),
    };
    let memory =
        memory.map(|(used, total)| format!("{} of {} GiB", gib(used.into()), gib(total.into())));
    let watts = watts.map(|watts| format!("{watts} W"));
    let parts = [Some(busy), memory, watts];
    parts.into_iter().flatten().collect::<Vec<_>>().join(" · ")
}

/// Samples of a GPU as counts per value, so that memory does not grow with the run.
#[derive(Debug, Clone, Default)]
struct Tally {
    samples: u64,
    gpu_percent: Counts,
    memory_mib: Counts,
    memory_total_mib: u32,
    watts: Counts,
}

impl Tally {
    fn add(&mut self, reading: &GpuReading) {
        self.samples += 1;
        self.gpu_percent.add(reading.gpu_percent);
        self.watts.add(reading.watts);
        if let Some((used, total)) = reading.memory_mib {
            self.memory_mib.add(Some(used));
            self.memory_total_mib = total;
        }
    }

    fn figures(&self, gpu: &Gpu) -> GpuUsage {
        GpuUsage {
            gpu: gpu.clone(),
            samples: self.samples,
            gpu_percent: self.gpu_percent.summary(),
            memory_mib: self.memory_mib.summary(),
            memory_total_mib: self.memory_total_mib,
            watts: self.watts.summary(),
        }
    }
}

#[derive(Debug, Clone, Default)]
struct Counts(BTreeMap<u32, u64>);

impl Counts {
    fn add(&mut self, value: Option<u32>) {
        if let Some(value) = value {
            *self.0.entry(value).or_default() += 1;
        }
    }

    fn summary(&self) -> Option<Summary> {
        let max = *self.0.keys().next_back()?;
        let n: u64 = self.0.values().sum();
        // The smallest value such that at least `percent` % of the samples are at most this value.
        let percentile = |percent: u64| {
            let rank = (n * percent).div_ceil(100);
            let mut seen = 0;
            let found = self.0.iter().find(|(_, times)| {
                seen += **times;
                seen >= rank
            });
            found.map_or(max, |(value, _)| *value)
        };
        #[expect(clippy::cast_precision_loss, reason = "a displayed mean")]
        let sum: f64 = (self.0.iter())
            .map(|(value, times)| f64::from(*value) * *times as f64)
            .sum();
        #[expect(clippy::cast_precision_loss, reason = "a displayed mean")]
        let mean = sum / n as f64;
        Some(Summary {
            mean,
            median: percentile(50),
            p95: percentile(95),
            max,
        })
    }
}

#[cfg(test)]
mod tests;
