//! The entry point of the program.

use std::process::ExitCode;

fn main() -> ExitCode {
    silence_onnxruntime();
    topicmill::cli::main()
}

/// Disables the telemetry of ONNX Runtime. Its API call for this is not enough: unless this variable is set when the
/// library is loaded, the library writes a device id and a database to the home folder, and looks up one of its
/// vendor's servers.
#[expect(
    unsafe_code,
    reason = "`main` has just begun, so no other thread reads the environment"
)]
fn silence_onnxruntime() {
    // SAFETY: see above.
    unsafe { std::env::set_var("ORT_DISABLE_TELEMETRY", "1") };
}
