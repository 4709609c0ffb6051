//! Whether this process holds memory of the GPU that was to compute: what shows that the model is there.
//!
//! What the driver lists goes in, a verdict comes out. Whatever the driver does not say is no verdict: containers, MIG
//! slices and WSL hide processes, and a model that computes must not be refused for that.

/// What the driver's list shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Holds {
    /// This process holds memory of the GPU.
    Memory,
    /// It holds none, so something else computes.
    Nothing,
    /// That cannot be told here.
    Untold,
}

/// What was asked of a GPU.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct ListedGpu {
    /// Processes that hold memory of it; `None` where the driver does not list them.
    pub processes: Option<Vec<u32>>,
    /// Memory in use, by any process, in bytes.
    pub used: Option<u64>,
}

/// A process of this number that has loaded at least so many bytes, on one of these GPUs. `same_numbers` says whether it has
/// the number by which the driver lists it, which in a container it has not.
pub(super) fn verdict(gpus: &[ListedGpu], own: u32, same_numbers: bool, least: u64) -> Holds {
    let names_it = |gpu: &ListedGpu| gpu.processes.as_ref().is_some_and(|all| all.contains(&own));
    // Less is in use than its weights take, whoever uses it.
    let too_little = |gpu: &ListedGpu| gpu.used.is_some_and(|used| used < least);
    // An empty list says nothing: that is how processes are hidden.
    let others = |gpu: &ListedGpu| gpu.processes.as_ref().is_some_and(|all| !all.is_empty());
    let lists_others = |gpu: &ListedGpu| same_numbers && others(gpu);
    if gpus.iter().any(names_it) {
        Holds::Memory
    } else if !gpus.is_empty() && gpus.iter().all(|gpu| too_little(gpu) || lists_others(gpu)) {
        Holds::Nothing
    } else {
        Holds::Untold
    }
}

/// Whether this process is numbered as the machine numbers it: the first namespace of process numbers has a fixed name
/// (`PROC_PID_INIT_INO` of Linux).
pub(super) fn has_same_number() -> bool {
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
        for (gpus, same_numbers, found) in [
            (vec![gpu(Some(&[3, 7]), Some(5000))], true, Holds::Memory),
            (vec![gpu(Some(&[3]), Some(5000))], true, Holds::Nothing),
            (vec![gpu(Some(&[]), Some(5000))], true, Holds::Untold),
            (vec![gpu(Some(&[]), None)], true, Holds::Untold),
            // In a container nobody is listed, or by another number.
            (vec![gpu(Some(&[]), Some(5000))], false, Holds::Untold),
            (vec![gpu(Some(&[3]), None)], false, Holds::Untold),
            // And yet there is too little in use for the model to be there.
            (vec![gpu(Some(&[]), Some(999))], false, Holds::Nothing),
            (vec![gpu(None, Some(999))], true, Holds::Nothing),
            (vec![gpu(None, Some(5000))], true, Holds::Untold),
            (vec![gpu(None, None)], true, Holds::Untold),
            (vec![], true, Holds::Untold),
            // Which of several GPUs it is may be unknown.
            (
                vec![gpu(Some(&[3]), None), gpu(Some(&[7]), None)],
                true,
                Holds::Memory,
            ),
            (
                vec![gpu(Some(&[3]), None), gpu(None, None)],
                true,
                Holds::Untold,
            ),
        ] {
            assert_eq!(
                verdict(&gpus, own, same_numbers, weights),
                found,
                "{gpus:?}"
            );
        }
    }
}
