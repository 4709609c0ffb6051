//! Names workers and checks whether a worker's process is still running.

use std::{fs, process};

use chrono::{DateTime, TimeDelta, Utc};
use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};

/// For this long after a lease expires, a difference between clocks may explain why its process is still running. After
/// that, the process must be hanging, or its process id must have been reused.
const MAX_CLOCK_SKEW: TimeDelta = TimeDelta::hours(1);

/// Returns the name of this worker: host, boot id, process namespace and process id. Another process on the same
/// machine can use the name to check whether the worker is still running. Host names are not unique, but boot ids are.
pub fn worker_name() -> String {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    // The first 32 of 128 random bits suffice to distinguish the boots of one host.
    let boot = boot.split('-').next().unwrap_or_default();
    let (host, namespace) = (host_name(), pid_namespace());
    format!("{host}:{boot}:{namespace}:{}", process::id())
}

/// Returns the name of this host; `host` if the system does not report one.
pub fn host_name() -> String {
    let name = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    match name.trim() {
        "" => "host".to_owned(),
        name => name.to_owned(),
    }
}

/// Returns the host in a worker's name.
pub fn host_of(worker: &str) -> &str {
    worker.split(':').next().unwrap_or_default()
}

fn pid_namespace() -> String {
    let link = fs::read_link("/proc/self/ns/pid").unwrap_or_default();
    let name = link.to_string_lossy();
    name.chars().filter(char::is_ascii_digit).collect()
}

/// Returns true if a worker was a process on this machine and has exited. Returns false for workers on other machines,
/// and if `/proc` does not identify the machine.
///
/// Queries the kernel rather than `/proc`, which may hide processes of other users (`hidepid=2`). If the process id was
/// reused, the worker seems to be running, and its leases expire only by time.
pub fn has_worker_exited(worker: &str, me: &str) -> bool {
    local_pid(worker, me).is_some_and(has_process_exited)
}

/// Returns true if a lease seems to have expired, but belongs to another running process on this machine, so that only
/// the clocks of the two processes differ.
pub(super) fn only_clocks_differ(worker: &str, expired: DateTime<Utc>, now: DateTime<Utc>) -> bool {
    let other = local_pid(worker, &worker_name()).filter(|pid| *pid != process::id());
    now - expired < MAX_CLOCK_SKEW && other.is_some_and(|pid| !has_process_exited(pid))
}

/// Returns the process id of a worker that was started on the machine of `me`.
fn local_pid(worker: &str, me: &str) -> Option<u32> {
    let ((place, pid), (here, _)) = (worker.rsplit_once(':')?, me.rsplit_once(':')?);
    let boot_is_known = here.split(':').nth(1).is_some_and(|boot| !boot.is_empty());
    let pid = pid.parse().ok()?;
    (place == here && boot_is_known).then_some(pid)
}

/// Returns true if this machine has no process with this id.
pub fn has_process_exited(pid: u32) -> bool {
    let pid = Pid::from_raw(pid.cast_signed());
    pid.is_some_and(|pid| test_kill_process(pid) == Err(Errno::SRCH))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the name of a worker of this machine with this process id.
    fn named(pid: u32) -> String {
        format!("{}:{pid}", worker_name().rsplit_once(':').unwrap().0)
    }

    /// Returns the id of a process that has exited.
    fn exited() -> u32 {
        let mut child = process::Command::new("true").spawn().unwrap();
        child.wait().unwrap();
        child.id()
    }

    #[test]
    fn running_processes_of_other_users_are_distinguished_from_exited_ones() {
        let (me, exited) = (worker_name(), exited());
        // Process 1 belongs to root.
        assert!(!has_worker_exited(&named(1), &me));
        assert!(!has_worker_exited(&me, &me));
        assert!(has_worker_exited(&named(exited), &me));
        assert!(!has_worker_exited(&format!("other:b0075:1:{exited}"), &me));
        // Without boot ids, the names of two machines can be equal.
        let without_boot = format!("host::1:{exited}");
        assert!(!has_worker_exited(&without_boot, "host::1:5"));
    }

    #[test]
    fn clocks_differ_by_an_hour_at_most() {
        let now = DateTime::UNIX_EPOCH;
        let minutes = |ago| now - TimeDelta::minutes(ago);
        assert!(only_clocks_differ(&named(1), minutes(10), now));
        assert!(!only_clocks_differ(&named(1), minutes(61), now));
        assert!(!only_clocks_differ(&named(exited()), minutes(10), now));
        assert!(!only_clocks_differ(&worker_name(), minutes(10), now));
    }
}
