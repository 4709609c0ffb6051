//! Parse, run, and turn the outcome into an exit code.

use std::process::ExitCode;

fn main() -> ExitCode {
    topicmill::cli::main()
}
