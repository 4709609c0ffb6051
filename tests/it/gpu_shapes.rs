//! Tests on a CPU that batches of a few fixed shapes, which a GPU needs, do not change the scores.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use topicmill_score::batch::Batch;
use topicmill_score::engine::Logits;
use topicmill_score::folder::ModelFolder;
use topicmill_score::{Engine, EngineError, Labeler, OnnxEngine, TextResult};

use crate::support::builders;
use crate::support::engine::{one_thread, repository, score};

const MODELS: [&str; 5] = [
    "tests/it/fixtures/models/tiny-bart-made",
    "tests/it/fixtures/models/tiny-bart-mnli",
    "tests/it/fixtures/models/tiny-bert-nli",
    "tests/it/fixtures/models/tiny-roberta-nli",
    "models/minilm-reddit-topics",
];

/// The sizes that an engine accepts for its batches.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Sizes {
    Any,
    Few,
}

/// The numbers of rows and the widths of batches.
type Shapes = BTreeSet<(usize, usize)>;

/// An engine on the CPU that records the shapes of its batches and can require that they be few.
struct RecordingEngine {
    engine: OnnxEngine,
    sizes: Sizes,
    shapes: Arc<Mutex<Shapes>>,
}

impl Engine for RecordingEngine {
    fn infer(&mut self, batch: &Batch) -> Result<Logits, EngineError> {
        let shape = (batch.rows(), batch.width);
        self.shapes.lock().unwrap().insert(shape);
        self.engine.infer(batch)
    }

    fn wants_few_shapes(&self) -> bool {
        self.sizes == Sizes::Few
    }
}

/// Returns a model's results for the texts, and the shapes of the batches.
fn scored(folder: &ModelFolder, sizes: Sizes, texts: &[String]) -> (Vec<TextResult>, Shapes) {
    let engine = OnnxEngine::load_unchecked(folder, &one_thread()).unwrap();
    assert!(!engine.wants_few_shapes(), "a CPU does not need few shapes");
    let shapes = Arc::default();
    let engine = RecordingEngine {
        engine,
        sizes,
        shapes: Arc::clone(&shapes),
    };
    let mut labeler = Labeler::load(folder.clone(), Box::new(engine), 400).unwrap();
    let set = builders::label_set(&["politics", "climate change", "food"]);
    let results = score(&mut labeler, &set, texts);
    let shapes = shapes.lock().unwrap().clone();
    (results, shapes)
}

#[test]
fn fixed_gpu_shapes_produce_the_same_scores() {
    // Texts of many lengths, some of them truncated, so that some batches are as wide as the model allows.
    let texts: Vec<String> = (0..60)
        .map(|n| format!("A vote on trains {}", "and bread ".repeat(n * n / 32)))
        .collect();
    for model in MODELS {
        let folder = ModelFolder::open(&repository(model), None).unwrap();
        let (any, any_shapes) = scored(&folder, Sizes::Any, &texts);
        let (few, few_shapes) = scored(&folder, Sizes::Few, &texts);
        for (text, (any, few)) in any.iter().zip(&few).enumerate() {
            let scores = any.scores.scores.iter().zip(&few.scores.scores);
            let off = scores.map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
            assert!(off < 1e-4, "{model} text {text}: {off:.1e}");
        }
        let window = folder.max_tokens;
        let is_few = |(rows, width): &(usize, usize)| {
            rows.is_power_of_two() && (width % 8 == 0 || *width == window)
        };
        assert!(few_shapes.iter().all(is_few), "{few_shapes:?}");
        assert!(few_shapes.iter().all(|(_, width)| *width <= window));
        // Without different shapes, this test would compare two identical runs.
        assert!(!any_shapes.iter().all(is_few), "{any_shapes:?}");
    }
}
