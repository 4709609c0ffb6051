//! ONNX Runtime for tests, and model folders to run on it.

use std::io::Write;
use std::path::{Path, PathBuf};

use topicmill::classify::onnx::load_runtime;
use topicmill::classify::{Device, EngineOptions, Labeler, OnnxEngine};
use topicmill::model_folder::ModelFolder;

/// A folder of the repository.
pub fn repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// ONNX Runtime's library as the tests found it, for programs that run elsewhere.
pub fn library() -> PathBuf {
    load_runtime(None)
        .map(|runtime| runtime.library().to_owned())
        .unwrap_or_default()
}

/// Whether ONNX Runtime is here. Without it a test fails on CI and is left out, loudly, elsewhere.
pub fn runtime_is_here(test: &str) -> bool {
    match load_runtime(None) {
        Ok(_) => true,
        Err(error) => {
            assert!(
                std::env::var_os("CI").is_none(),
                "{test} needs ONNX Runtime on CI: {error}"
            );
            // Not `eprintln`: the test harness keeps that to itself where a test passes.
            writeln!(std::io::stderr(), "*** NOT RUN: {test}: {error}").expect("stderr is open");
            false
        }
    }
}

/// A model folder on one thread of the CPU.
pub fn labeler(folder: &Path, batch_tokens: usize) -> Labeler {
    let folder = ModelFolder::open(folder, None).unwrap();
    let options = EngineOptions {
        device: Device::Cpu,
        threads: Some(1),
        library: None,
    };
    let engine = OnnxEngine::load(&folder, &options).unwrap();
    Labeler::load(folder, Box::new(engine), batch_tokens).unwrap()
}
