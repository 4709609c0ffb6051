//! The entry point of the program; see `cli`.

use std::process::ExitCode;

fn main() -> ExitCode {
    silence_onnxruntime();
    topicmill::cli::main()
}

/// Disables ONNX Runtime's telemetry. Its own API call is not enough: unless this variable is set when the library is
/// loaded, it writes a device id and a database to the home folder, and resolves its vendor's server.
#[expect(
    unsafe_code,
    reason = "`main` has just started, so no other thread reads the environment"
)]
fn silence_onnxruntime() {
    // SAFETY: see above.
    unsafe { std::env::set_var("ORT_DISABLE_TELEMETRY", "1") };
}
