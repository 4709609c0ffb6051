//! Parse, run, and turn the outcome into an exit code.

use std::process::ExitCode;

fn main() -> ExitCode {
    silence_onnxruntime();
    topicmill::cli::main()
}

/// Switches off ONNX Runtime's telemetry, which its own call for that does not: the library writes the id of a device
/// and a database into the home, and looks its maker's server up, unless it finds this variable when it is loaded.
#[expect(
    unsafe_code,
    reason = "nothing runs beside us: `main` has just begun, so nobody reads the environment meanwhile"
)]
fn silence_onnxruntime() {
    // SAFETY: see above.
    unsafe { std::env::set_var("ORT_DISABLE_TELEMETRY", "1") };
}
