//! Names of the processes that hold leases, and whether they still live.

use std::process;

use chrono::{DateTime, TimeDelta, Utc};

/// A lease that expired longer ago is no matter of clocks: its process hangs, or a new one has its number.
const MAX_CLOCK_SKEW: TimeDelta = TimeDelta::hours(1);

/// Returns the name of this process among workers: host, boot, process namespace and process id. With it, a process of
/// the same machine can tell whether it still lives. Names of hosts are not unique; boots are.
pub fn worker_name() -> String {
    let read = |path| std::fs::read_to_string(path).unwrap_or_default();
    let host = read("/proc/sys/kernel/hostname");
    let boot = read("/proc/sys/kernel/random/boot_id");
    // The first 32 of its 128 random bits are enough to distinguish boots of one host.
    let boot = boot.split('-').next().unwrap_or_default();
    let host = Some(host.trim())
        .filter(|host| !host.is_empty())
        .unwrap_or("host");
    format!("{host}:{boot}:{}:{}", pid_namespace(), process::id())
}

fn pid_namespace() -> String {
    let link = std::fs::read_link("/proc/self/ns/pid").unwrap_or_default();
    let name = link.to_string_lossy();
    name.chars().filter(char::is_ascii_digit).collect()
}

/// Returns true if a worker was a process of this machine and is gone. Of another machine, or where `/proc` does not
/// tell machines apart, nobody knows.
///
/// The kernel is asked and not `/proc`, which may hide processes of other users (`hidepid=2`). A new process may have
/// the number of one that is gone, which then seems to live; its leases expire in their time.
pub fn died(worker: &str, me: &str) -> bool {
    neighbour(worker, me).is_some_and(is_gone)
}

/// Returns true if a lease that seems to have expired is held by another live process of this machine, so that only the
/// clocks of both differ.
pub(super) fn only_clocks_differ(worker: &str, expired: DateTime<Utc>, now: DateTime<Utc>) -> bool {
    let other = neighbour(worker, &worker_name()).filter(|pid| *pid != process::id());
    now - expired < MAX_CLOCK_SKEW && other.is_some_and(|pid| !is_gone(pid))
}

/// The process id of a worker that runs, or ran, where `me` does.
fn neighbour(worker: &str, me: &str) -> Option<u32> {
    let ((place, pid), (here, _)) = (worker.rsplit_once(':')?, me.rsplit_once(':')?);
    let boot_is_known = here.split(':').nth(1).is_some_and(|boot| !boot.is_empty());
    let pid = pid.parse().ok()?;
    (place == here && boot_is_known).then_some(pid)
}

/// Returns true if this machine has no process with this id.
#[cfg(unix)]
pub fn is_gone(pid: u32) -> bool {
    use rustix::process::{Pid, test_kill_process};

    let pid = Pid::from_raw(pid.cast_signed());
    pid.is_some_and(|pid| test_kill_process(pid) == Err(rustix::io::Errno::SRCH))
}

#[cfg(not(unix))]
pub fn is_gone(_: u32) -> bool {
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_of_another_user_lives_and_one_that_ended_died() {
        let me = worker_name();
        let named = |pid: u32| format!("{}:{pid}", me.rsplit_once(':').unwrap().0);
        let mut child = process::Command::new("true").spawn().unwrap();
        child.wait().unwrap();
        // Process 1 is root's.
        for (worker, is_dead) in [
            (named(1), false),
            (named(child.id()), true),
            (me.clone(), false),
        ] {
            assert_eq!(died(&worker, &me), is_dead, "{worker}");
        }
        assert!(!died(&format!("other:b0075:1:{}", child.id()), &me));
        let now = DateTime::UNIX_EPOCH;
        let minutes = |ago| now - TimeDelta::minutes(ago);
        assert!(only_clocks_differ(&named(1), minutes(10), now));
        assert!(!only_clocks_differ(&named(1), minutes(61), now));
        assert!(!only_clocks_differ(&named(child.id()), minutes(10), now));
        assert!(!only_clocks_differ(&me, minutes(10), now));
        // Two machines whose boots nobody can read may have all else in common.
        assert!(!died(&format!("host::1:{}", child.id()), "host::1:5"));
    }
}
