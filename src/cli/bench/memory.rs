//! Peak memory of this process, from `/proc` (Linux only).

/// Resets the peak to the current usage.
pub fn reset_peak() {
    // If the reset fails, the peak covers the whole run: too high, but never too low.
    let _ = std::fs::write("/proc/self/clear_refs", "5");
}

/// Returns the peak in MiB.
pub fn peak_mib() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kib: u64 = line.trim().trim_end_matches("kB").trim().parse().ok()?;
    Some(kib / 1024)
}
