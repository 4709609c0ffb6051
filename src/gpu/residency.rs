//! Checks that a model was loaded onto its GPU, using the driver's list of processes that hold memory there.
//!
//! Containers, MIG slices and WSL hide processes. A model that computes must not be rejected for that, so missing
//! information yields `Unknown`.

/// The result of the check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Residency {
    /// This process holds memory on the GPU.
    Resident,
    /// It holds none, so the model runs elsewhere.
    NotResident,
    /// The driver does not report it.
    Unknown,
}

/// The state of a GPU as the driver reports it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct ListedGpu {
    /// Processes that hold memory on the GPU; `None` if the driver does not list them.
    pub processes: Option<Vec<u32>>,
    /// Memory in use, by any process, in bytes.
    pub used: Option<u64>,
}

/// Decides whether the process `own`, which loaded at least `least` bytes, uses the requested GPU. `gpus` are the
/// candidates for this GPU. `has_host_pid` is true if the driver lists this process under the same pid, unlike in a
/// container.
pub(super) fn verdict(gpus: &[ListedGpu], own: u32, has_host_pid: bool, least: u64) -> Residency {
    let names_it = |gpu: &ListedGpu| gpu.processes.as_ref().is_some_and(|all| all.contains(&own));
    // Less memory is in use, by all processes, than the weights need.
    let too_little = |gpu: &ListedGpu| gpu.used.is_some_and(|used| used < least);
    // An empty list may mean that processes are hidden.
    let others = |gpu: &ListedGpu| gpu.processes.as_ref().is_some_and(|all| !all.is_empty());
    let lists_others = |gpu: &ListedGpu| has_host_pid && others(gpu);
    if gpus.iter().any(names_it) {
        Residency::Resident
    } else if !gpus.is_empty() && gpus.iter().all(|gpu| too_little(gpu) || lists_others(gpu)) {
        Residency::NotResident
    } else {
        Residency::Unknown
    }
}

/// Returns true if this process is in the initial pid namespace, whose inode number is fixed (`PROC_PID_INIT_INO` of
/// Linux).
pub(super) fn has_host_pid() -> bool {
    let name = std::fs::read_link("/proc/self/ns/pid").unwrap_or_default();
    name.to_str() == Some("pid:[4026531836]")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn absence_from_the_gpu_is_distinguished_from_missing_information() {
        let gpu = |processes: Option<&[u32]>, used| ListedGpu {
            processes: processes.map(<[u32]>::to_vec),
            used,
        };
        let (own, weights) = (7, 1000);
        for (gpus, has_host_pid, found) in [
            (
                vec![gpu(Some(&[3, 7]), Some(5000))],
                true,
                Residency::Resident,
            ),
            (
                vec![gpu(Some(&[3]), Some(5000))],
                true,
                Residency::NotResident,
            ),
            (vec![gpu(Some(&[]), Some(5000))], true, Residency::Unknown),
            (vec![gpu(Some(&[]), None)], true, Residency::Unknown),
            // In a container the list is empty, or contains other pids.
            (vec![gpu(Some(&[]), Some(5000))], false, Residency::Unknown),
            (vec![gpu(Some(&[3]), None)], false, Residency::Unknown),
            // Too little memory is in use for the model to be there.
            (
                vec![gpu(Some(&[]), Some(999))],
                false,
                Residency::NotResident,
            ),
            (vec![gpu(None, Some(999))], true, Residency::NotResident),
            (vec![gpu(None, Some(5000))], true, Residency::Unknown),
            (vec![gpu(None, None)], true, Residency::Unknown),
            (vec![], true, Residency::Unknown),
            // The index among several GPUs may be unknown.
            (
                vec![gpu(Some(&[3]), None), gpu(Some(&[7]), None)],
                true,
                Residency::Resident,
            ),
            (
                vec![gpu(Some(&[3]), None), gpu(None, None)],
                true,
                Residency::Unknown,
            ),
        ] {
            assert_eq!(
                verdict(&gpus, own, has_host_pid, weights),
                found,
                "{gpus:?}"
            );
        }
    }
}
