//! Notices about tests that cannot run on this machine.

use std::io::Write as _;

/// Prints a conspicuous line about what is not tested, and why.
pub fn not_tested(what: &str) {
    // Not `eprintln`: the test harness hides that output if the test passes.
    writeln!(std::io::stderr(), "\n*** NOT TESTED {what} ***").expect("stderr is open");
}
