//! Loads ONNX Runtime and model folders for tests, and provides a scripted engine that runs no model.

use std::path::{Path, PathBuf};
use std::time::Duration;

use topicmill_core::model_kind::NliClasses;
use topicmill_core::{LabelSet, ModelKind};
use topicmill_score::batch::Batch;
use topicmill_score::engine::Logits;
use topicmill_score::folder::ModelFolder;
use topicmill_score::onnx::load_runtime;
use topicmill_score::openvino::load_openvino;
use topicmill_score::{
    Device, Engine, EngineError, EngineOptions, Labeler, OnnxEngine, TextResult,
};

use super::notice::not_tested;

/// Returns the absolute path of a file or folder in the repository.
pub fn repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// Copies the files of a folder, such as a model, without its subfolders.
pub fn copy_files(from: &Path, to: &Path) {
    for entry in std::fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        if path.is_file() {
            std::fs::copy(&path, to.join(path.file_name().unwrap())).unwrap();
        }
    }
}

/// Returns the files below a folder, sorted; symlinks to folders count as files.
pub fn files_below(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap();
    let paths = entries.map(|entry| entry.unwrap().path());
    let below = paths.flat_map(|path| {
        if path.is_dir() && !path.is_symlink() {
            files_below(&path)
        } else {
            vec![path]
        }
    });
    let mut files: Vec<PathBuf> = below.collect();
    files.sort();
    files
}

/// Returns the path of ONNX Runtime's library for a child process, or an empty path if there is none.
pub fn library() -> PathBuf {
    load_runtime(None)
        .map(|runtime| runtime.library().to_owned())
        .unwrap_or_default()
}

/// Returns true if OpenVINO is available. If it is not, panics if `TOPICMILL_OPENVINO_TESTS` is `must`, and prints a
/// conspicuous line otherwise.
pub fn has_openvino(test: &str) -> bool {
    let Err(error) = load_openvino(None) else {
        return true;
    };
    let must = std::env::var("TOPICMILL_OPENVINO_TESTS").is_ok_and(|set| set == "must");
    assert!(!must, "{test} needs OpenVINO (`make openvino`): {error}");
    not_tested(&format!("with OpenVINO: {test}: {error}"));
    false
}

/// Loads a labeler from a model folder, on one CPU thread.
pub fn labeler(folder: &Path, batch_tokens: usize) -> Labeler {
    labeler_of(ModelFolder::open(folder, None).unwrap(), batch_tokens)
}

/// Loads a labeler from an opened model folder, on one CPU thread.
pub fn labeler_of(folder: ModelFolder, batch_tokens: usize) -> Labeler {
    let engine = OnnxEngine::load_unchecked(&folder, &one_thread()).unwrap();
    Labeler::load(folder, Box::new(engine), batch_tokens).unwrap()
}

/// Returns the options of an engine on one CPU thread.
pub fn one_thread() -> EngineOptions {
    EngineOptions {
        device: Device::Cpu,
        threads: Some(1),
        ..EngineOptions::default()
    }
}

/// Scores texts, none of which may fail.
pub fn score(labeler: &mut Labeler, set: &LabelSet, texts: &[String]) -> Vec<TextResult> {
    let prepared = labeler.prepare(set).unwrap();
    let results = labeler.score_all(&prepared, texts, &[], &|| false).unwrap();
    let results = results.expect("scoring is not cancelled").into_iter();
    results.map(Result::unwrap).collect()
}

/// An engine without a model. Its logits depend only on the token ids of each row; it can be slow, or crash.
#[derive(Default)]
pub struct ScriptedEngine {
    /// The duration of each batch.
    pub batch: Duration,
    /// A batch that contains these token ids aborts the process, as a faulty runtime would.
    pub deadly: Option<Vec<i64>>,
    /// A file created when the first batch arrives.
    pub started: Option<PathBuf>,
}

impl Engine for ScriptedEngine {
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

/// Returns a labeler with a scripted engine, the default model's tokenizer, and the logits of an NLI model.
///
/// `engine` creates the engine; it receives a function that returns the token ids of a text.
pub fn scripted(engine: impl FnOnce(&dyn Fn(&str) -> Vec<i64>) -> ScriptedEngine) -> Labeler {
    let mut folder = ModelFolder::open(&repository("models/minilm-reddit-topics"), None).unwrap();
    folder.kind = ModelKind::Nli(NliClasses {
        count: 3,
        entailment: 2,
        contradiction: 0,
        neutral: Some(1),
    });
    let encoder = topicmill_score::text::Encoder::load(&folder).unwrap();
    let ids = |text: &str| {
        let text = encoder.encode_whole(text).unwrap();
        // Without the special tokens.
        let ids = encoder.single(&text).ids().skip(1).take(text.len());
        ids.map(|(id, _)| i64::from(id)).collect()
    };
    let engine = engine(&ids);
    Labeler::load(folder, Box::new(engine), 4_096).unwrap()
}
