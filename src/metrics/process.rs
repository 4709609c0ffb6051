//! Process metrics under their standard names; none without `/proc`.

use std::fs;

use super::exposition::{Exposition, real};

/// Ticks per second of the times in `/proc`: 100 on every architecture (time(7)).
const TICKS: f64 = 100.0;

pub(super) fn put(exposition: &mut Exposition) {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let of_status = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        line.split_whitespace().next()?.parse::<u64>().ok()
    };
    let memory = of_status("VmRSS:").map(|kib| real(kib * 1024));
    exposition.put_some("process_resident_memory_bytes", &[], memory);
    exposition.put_some("process_threads", &[], of_status("Threads:").map(real));
    // Excludes the descriptor of the folder that is being read.
    let fds = fs::read_dir("/proc/self/fd").map(|fds| fds.count().saturating_sub(1) as u64);
    exposition.put_some("process_open_fds", &[], fds.ok().map(real));
    let limits = fs::read_to_string("/proc/self/limits").unwrap_or_default();
    let most = limits
        .lines()
        .find_map(|line| line.strip_prefix("Max open files"));
    let most = most.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    exposition.put_some("process_max_fds", &[], most.map(real));
    if let Some((cpu, began)) = times() {
        exposition.put("process_cpu_seconds_total", &[], cpu);
        exposition.put_some("process_start_time_seconds", &[], began);
    }
}

/// Returns the CPU seconds and the start time of the process.
fn times() -> Option<(f64, Option<f64>)> {
    let stat = fs::read_to_string("/proc/self/stat").ok()?;
    // The process name is in parentheses and may contain anything. The field after it is the third.
    let (_, fields) = stat.rsplit_once(')')?;
    let fields: Vec<&str> = fields.split_whitespace().collect();
    let ticks = |number: usize| fields.get(number - 3)?.parse::<u64>().ok().map(real);
    let cpu = (ticks(14)? + ticks(15)?) / TICKS;
    let boot = fs::read_to_string("/proc/stat").ok();
    let boot = boot.as_deref().and_then(|text| {
        let line = text.lines().find_map(|line| line.strip_prefix("btime "))?;
        line.trim().parse::<u64>().ok().map(real)
    });
    Some((cpu, boot.zip(ticks(22)).map(|(boot, at)| boot + at / TICKS)))
}
