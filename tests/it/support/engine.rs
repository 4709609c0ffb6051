//! ONNX Runtime for tests, and model folders to run on it; and an engine that needs neither.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use topicmill_score::Device;
use topicmill_score::Engine;
use topicmill_score::EngineError;
use topicmill_score::EngineOptions;
use topicmill_score::Labeler;
use topicmill_score::OnnxEngine;
use topicmill_score::SharedWeights;
use topicmill_score::batch::Batch;
use topicmill_score::engine::Logits;
use topicmill_score::folder::{ModelFolder, ModelKind, NliClasses};
use topicmill_score::onnx::load_runtime;
use topicmill_score::openvino::load_openvino;

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

/// Whether OpenVINO is here too. Without it a test fails where `TOPICMILL_OPENVINO_TESTS` is `must`, and is left out,
/// loudly, elsewhere.
pub fn openvino_is_here(test: &str) -> bool {
    let Err(error) = load_openvino(None) else {
        return runtime_is_here(test);
    };
    let must = std::env::var("TOPICMILL_OPENVINO_TESTS").is_ok_and(|set| set == "must");
    assert!(!must, "{test} needs OpenVINO (`make openvino`): {error}");
    writeln!(std::io::stderr(), "*** NOT RUN: {test}: {error}").expect("stderr is open");
    false
}

/// A model folder on one thread of the CPU.
pub fn labeler(folder: &Path, batch_tokens: usize) -> Labeler {
    labeler_of(ModelFolder::open(folder, None).unwrap(), batch_tokens)
}

/// A labeler of a folder that was opened.
pub fn labeler_of(folder: ModelFolder, batch_tokens: usize) -> Labeler {
    labeler_with(folder, batch_tokens, None)
}

/// The same with weights that others have too.
pub fn labeler_with(
    folder: ModelFolder,
    batch_tokens: usize,
    weights: Option<SharedWeights>,
) -> Labeler {
    let options = EngineOptions {
        device: Device::Cpu,
        threads: Some(1),
        weights,
        ..EngineOptions::default()
    };
    let engine = OnnxEngine::load_unchecked(&folder, &options).unwrap();
    Labeler::load(folder, Box::new(engine), batch_tokens).unwrap()
}

/// An engine without a model: answers each row by its own ids alone, and takes its time.
#[derive(Default)]
pub struct Scripted {
    /// How long a batch takes.
    pub batch: Duration,
    /// A batch with this text's ids in a row ends the process, as a broken runtime does.
    pub deadly: Option<Vec<i64>>,
    /// Made when the first batch comes.
    pub started: Option<PathBuf>,
}

impl Engine for Scripted {
    #[expect(clippy::cast_precision_loss, reason = "small numbers")]
    fn infer(&mut self, batch: &Batch) -> Result<Logits, EngineError> {
        if let Some(started) = self.started.take() {
            std::fs::write(started, "").unwrap();
        }
        std::thread::sleep(self.batch);
        let mut data = Vec::with_capacity(batch.rows() * 3);
        for (row, len) in batch.lens.iter().enumerate() {
            let ids = &batch.ids[row * batch.width..row * batch.width + len];
            if let Some(deadly) = &self.deadly
                && ids.windows(deadly.len()).any(|part| part == deadly)
            {
                std::process::abort();
            }
            let sum: i64 = ids.iter().zip(1..).map(|(id, place)| id * place).sum();
            data.extend((0..3).map(|class| ((sum + class * 37) % 101) as f32 / 10.0 - 5.0));
        }
        Ok(Logits {
            rows: batch.rows(),
            width: 3,
            data,
        })
    }
}

/// A labeler on a scripted engine: the default model's tokenizer with the outputs of an NLI model.
pub fn scripted(engine: impl FnOnce(&dyn Fn(&str) -> Vec<i64>) -> Scripted) -> Labeler {
    let mut folder = ModelFolder::open(&repository("models/minilm-reddit-topics"), None).unwrap();
    folder.kind = ModelKind::Nli(NliClasses {
        count: 3,
        entailment: 2,
        contradiction: 0,
        neutral: Some(1),
    });
    let encoder = topicmill_score::text::Encoder::load(&folder).unwrap();
    let ids = |text: &str| {
        let ids = encoder.single(&encoder.encode_whole(text).unwrap()).ids;
        // Without the special tokens around it.
        ids[1..ids.len() - 1]
            .iter()
            .map(|id| i64::from(*id))
            .collect()
    };
    let engine = engine(&ids);
    Labeler::load(folder, Box::new(engine), 4_096).unwrap()
}
