//! Sets of labels made ready together: as each of them alone.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;
use crate::batch::Batch;
use crate::engine::{Engine, EngineError, Logits};
use crate::folder::EmbeddingHead;
use crate::labeler::{Ended, TextResult};
use crate::scripted::{Scripted, background, nli_folder, set};

/// Counts batches.
struct Counting(Scripted, Arc<AtomicUsize>);

impl Engine for Counting {
    fn infer(&mut self, batch: &Batch) -> Result<Logits, EngineError> {
        self.1.fetch_add(1, Ordering::Relaxed);
        self.0.infer(batch)
    }
}

fn embedding() -> ModelKind {
    ModelKind::Embedding(EmbeddingHead {
        output: "v".into(),
        softmax_scale: 7.0,
        sigmoid_scale: 7.0,
        sigmoid_bias: 0.1,
    })
}

fn labeler(kind: Option<ModelKind>) -> (Labeler, Arc<AtomicUsize>) {
    let batches = Arc::new(AtomicUsize::new(0));
    let mut folder = nli_folder();
    folder.kind = kind.unwrap_or(folder.kind);
    let engine = Counting(Scripted::default(), Arc::clone(&batches));
    (
        Labeler::load(folder, Box::new(engine), 4096).unwrap(),
        batches,
    )
}

/// Many lists of labels, some of them in several lists.
fn sets() -> Vec<LabelSet> {
    let words = ["food", "music", "chess", "rust", "travel", "law", "war"];
    (0..30)
        .map(|i| {
            let labels: Vec<&str> = (0..=i % 6).map(|k| words[(i + k) % 7]).collect();
            set(&labels)
        })
        .collect()
}

fn score(labeler: &mut Labeler, prepared: &[&Prepared], texts: &[String]) -> Vec<TextResult> {
    let encoded = labeler.encoder().encode(texts).unwrap();
    let mut results = vec![None; texts.len()];
    let of_text = |text: usize| prepared[text];
    let ended = labeler.score_each(&of_text, &encoded, &[], &|| false, &mut |text, result| {
        assert!(results[text].replace(result.unwrap()).is_none());
    });
    assert_eq!(ended.unwrap(), Ended::Done);
    results.into_iter().map(Option::unwrap).collect()
}

#[test]
fn texts_with_labels_of_their_own_are_scored_as_each_alone() {
    for with_background in [false, true] {
        for kind in [None, Some(embedding())] {
            let (mut labeler, batches) = labeler(kind);
            let mut sets = sets();
            for set in &mut sets {
                set.background = with_background.then(background);
            }
            let texts: Vec<String> = (0..sets.len()).map(|i| format!("post {i}")).collect();
            let mut alone = Vec::new();
            for (set, text) in sets.iter().zip(&texts) {
                let prepared = labeler.prepare(set).unwrap();
                alone.extend(score(
                    &mut labeler,
                    &[&prepared],
                    std::slice::from_ref(text),
                ));
            }
            let before = batches.swap(0, Ordering::Relaxed);
            let mut known = KnownVectors::new(100);
            let together = labeler.prepare_each(&sets, &mut known).unwrap();
            let together: Vec<Prepared> = together.into_iter().map(Result::unwrap).collect();
            let prepared: Vec<&Prepared> = together.iter().collect();
            assert_eq!(score(&mut labeler, &prepared, &texts), alone);
            // Rows of all texts share batches.
            assert!(
                batches.load(Ordering::Relaxed) * 10 < before,
                "{} {before}",
                batches.load(Ordering::Relaxed)
            );
        }
    }
}

#[test]
fn labels_that_were_seen_are_not_computed_again() {
    let (mut labeler, batches) = labeler(Some(embedding()));
    let mut known = KnownVectors::new(100);
    labeler.prepare_each(&sets(), &mut known).unwrap();
    assert_eq!(known.len(), 7);
    let before = batches.load(Ordering::Relaxed);
    labeler.prepare_each(&sets(), &mut known).unwrap();
    assert_eq!((batches.load(Ordering::Relaxed), known.len()), (before, 7));
    // A store that is too small computes again, and never holds more than it may.
    let mut few = KnownVectors::new(4);
    for _ in 0..3 {
        let prepared = labeler.prepare_each(&sets(), &mut few).unwrap();
        assert!(prepared.iter().all(Result::is_ok));
        assert!((1..=4).contains(&few.len()), "{}", few.len());
    }
}

#[test]
fn a_set_that_cannot_be_used_fails_alone() {
    for kind in [None, Some(embedding())] {
        let (mut labeler, _) = labeler(kind);
        let long = "word ".repeat(600);
        let sets = [
            set(&["food", "music"]),
            set(&["food", &long]),
            set(&[]),
            set(&["food", "food"]),
            set(&["music"]),
        ];
        let mut known = KnownVectors::new(100);
        let prepared = labeler.prepare_each(&sets, &mut known).unwrap();
        assert!(prepared[0].is_ok() && prepared[4].is_ok());
        assert!(matches!(prepared[1], Err(LabelerError::TooLong { .. })));
        assert!(matches!(prepared[2], Err(LabelerError::LabelSet(_))));
        assert!(matches!(prepared[3], Err(LabelerError::LabelSet(_))));
    }
}
