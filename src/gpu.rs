//! Asks `nvidia-smi`, which comes with NVIDIA's driver, whether this process holds memory on a GPU.
//!
//! A library that silently computes on the CPU would only be noticed by its speed. Containers, MIG slices, WSL and MPS
//! hide processes, and a model that computes must not be rejected for that: missing information yields
//! [`Residency::Unknown`].

use std::path::Path;
use std::process::Command;

/// The driver's command line tool.
const PROGRAM: &str = "nvidia-smi";
/// The process that computes for all others under MPS, NVIDIA's multi-process service.
const MPS: &str = "nvidia-cuda-mps";

/// The result of the check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Residency {
    /// This process holds memory on a GPU.
    Resident,
    /// It holds none, so the model runs elsewhere.
    NotResident,
    /// The driver does not report it.
    Unknown,
}

/// Checks that this process holds memory on a GPU, after it loaded a model of at least `bytes` bytes there.
pub fn check_residency(bytes: u64) -> Residency {
    // The inode number of the initial pid namespace is fixed (`PROC_PID_INIT_INO` of Linux).
    let namespace = std::fs::read_link("/proc/self/ns/pid").unwrap_or_default();
    let has_host_pid = namespace.to_str() == Some("pid:[4026531836]");
    check_with(PROGRAM.as_ref(), std::process::id(), has_host_pid, bytes)
}

/// Returns the memory in use on all GPUs, by any process, in MiB.
pub fn memory_used_mib() -> Option<u64> {
    query(PROGRAM.as_ref(), "--query-gpu=memory.used").and_then(|gpus| sum(&gpus))
}

/// Decides whether the process `own` uses a GPU. `has_host_pid` is true if the driver lists it under the same pid,
/// unlike in a container.
fn check_with(program: &Path, own: u32, has_host_pid: bool, bytes: u64) -> Residency {
    let Some(processes) = query(program, "--query-compute-apps=pid,process_name") else {
        return Residency::Unknown;
    };
    let pid = |line: &String| line.split(',').next()?.trim().parse::<u32>().ok();
    let mut pids = processes.iter().filter_map(pid);
    if pids.any(|pid| pid == own) {
        return Residency::Resident;
    }
    // Less memory is in use, by all processes, than the weights need.
    let used = query(program, "--query-gpu=memory.used").and_then(|gpus| sum(&gpus));
    let is_too_little = used.is_some_and(|mib| mib << 20 < bytes);
    // An empty list may mean that processes are hidden.
    let lists_others = processes.iter().any(|line| pid(line).is_some());
    let has_mps = processes.iter().any(|line| line.contains(MPS));
    if is_too_little || (has_host_pid && lists_others && !has_mps) {
        Residency::NotResident
    } else {
        Residency::Unknown
    }
}

/// Returns the lines of a query; `None` if there is no driver, or the query fails.
fn query(program: &Path, what: &str) -> Option<Vec<String>> {
    let output = Command::new(program)
        .args([what, "--format=csv,noheader,nounits"])
        .output()
        .ok()
        .filter(|output| output.status.success())?;
    let text = String::from_utf8_lossy(&output.stdout);
    Some(text.lines().map(str::to_owned).collect())
}

/// Sums one number per line; `None` if there is none, or one of them is not reported.
fn sum(lines: &[String]) -> Option<u64> {
    let numbers = lines.iter().map(|line| line.trim().parse::<u64>());
    let total = numbers.sum::<Result<u64, _>>().ok()?;
    (!lines.is_empty()).then_some(total)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn absence_from_the_gpu_is_distinguished_from_missing_information() {
        use Residency::{NotResident, Resident, Unknown};
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("nvidia-smi");
        let check = |processes: &str, used: &str, has_host_pid| {
            let script = format!(
                "#!/bin/sh\ncase $1 in *apps*) printf '{processes}';; *) printf '{used}';; esac\n"
            );
            std::fs::write(&program, script).unwrap();
            std::fs::set_permissions(&program, PermissionsExt::from_mode(0o755)).unwrap();
            check_with(&program, 7, has_host_pid, 1000 << 20)
        };
        for (processes, used, has_host_pid, expected) in [
            ("3, python\\n7, topicmill\\n", "5000\\n", true, Resident),
            ("3, python\\n", "5000\\n", true, NotResident),
            ("", "5000\\n", true, Unknown),
            ("[N/A], [N/A]\\n", "5000\\n", true, Unknown),
            // In a container the list is empty, or contains other pids.
            ("3, python\\n", "5000\\n", false, Unknown),
            // Under MPS, only its server may be listed.
            ("3, nvidia-cuda-mps-server\\n", "5000\\n", true, Unknown),
            // Too little memory is in use for the model to be there.
            ("", "400\\n599\\n", false, NotResident),
            ("", "400\\n600\\n", false, Unknown),
            ("", "[N/A]\\n", true, Unknown),
        ] {
            let residency = check(processes, used, has_host_pid);
            assert_eq!(residency, expected, "{processes} {used} {has_host_pid}");
        }
        std::fs::write(&program, "#!/bin/sh\nexit 9\n").unwrap();
        assert_eq!(check_with(&program, 7, true, 1), Unknown);
        let nothing = folder.path().join("nothing");
        assert_eq!(check_with(&nothing, 7, true, 1), Unknown);
    }
}
