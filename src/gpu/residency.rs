//! Whether this process holds memory of the GPU that was to compute: what shows that the model is there.
//!
//! What the driver lists goes in, a verdict comes out. Whatever the driver does not say is no verdict: containers, MIG
//! slices and WSL hide processes, and a model that computes must not be refused for that.

/// What the driver's list shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Residency {
    /// This process holds memory of the GPU.
    Resident,
    /// It holds none, so something else computes.
    NotResident,
    /// That cannot be told here.
    Unknown,
}

/// What was asked of a GPU.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct ListedGpu {
    /// Processes that hold memory of it; `None` where the driver does not list them.
    pub processes: Option<Vec<u32>>,
    /// Memory in use, by any process, in bytes.
    pub used: Option<u64>,
}

/// A process of this number that has loaded at least so many bytes, on one of these GPUs. `has_host_pid` says whether it has
/// the number by which the driver lists it, which in a container it has not.
pub(super) fn verdict(gpus: &[ListedGpu], own: u32, has_host_pid: bool, least: u64) -> Residency {
    let names_it = |gpu: &ListedGpu| gpu.processes.as_ref().is_some_and(|all| all.contains(&own));
    // Less is in use than its weights take, whoever uses it.
    let too_little = |gpu: &ListedGpu| gpu.used.is_some_and(|used| used < least);
    // An empty list says nothing: that is how processes are hidden.
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

/// Whether this process is numbered as the machine numbers it: the first namespace of process numbers has a fixed name
/// (`PROC_PID_INIT_INO` of Linux).
pub(super) fn has_host_pid() -> bool {
    let name = std::fs::read_link("/proc/self/ns/pid").unwrap_or_default();
    name.to_str() == Some("pid:[4026531836]")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gpu_without_this_process_is_told_from_one_that_does_not_tell() {
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
            // In a container nobody is listed, or by another number.
            (vec![gpu(Some(&[]), Some(5000))], false, Residency::Unknown),
            (vec![gpu(Some(&[3]), None)], false, Residency::Unknown),
            // And yet there is too little in use for the model to be there.
            (
                vec![gpu(Some(&[]), Some(999))],
                false,
                Residency::NotResident,
            ),
            (vec![gpu(None, Some(999))], true, Residency::NotResident),
            (vec![gpu(None, Some(5000))], true, Residency::Unknown),
            (vec![gpu(None, None)], true, Residency::Unknown),
            (vec![], true, Residency::Unknown),
            // Which of several GPUs it is may be unknown.
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
