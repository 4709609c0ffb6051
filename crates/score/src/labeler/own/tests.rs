//! Sets of labels made ready together: as each of them alone.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;
use crate::batch::Batch;
use crate::engine::{Engine, EngineError, Logits};
use crate::folder::{EmbeddingHead, LearnedLabel, LearnedLabels};
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
        learned: Arc::default(),
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

/// The same model, with learned vectors of so many numbers for food and music.
fn learned(numbers: usize) -> ModelKind {
    let ModelKind::Embedding(mut head) = embedding() else {
        unreachable!("an embedding model");
    };
    let set = set(&["food", "music"]);
    let labels = (1u8..)
        .zip(&set.labels)
        .map(|(number, label)| LearnedLabel {
            texts: hypothesis::texts(&embedding(), &set, label),
            vector: (number..).take(numbers).map(f64::from).collect(),
        });
    head.learned = Arc::new(LearnedLabels::of(labels.collect()).unwrap());
    ModelKind::Embedding(head)
}

#[test]
fn learned_vectors_are_not_computed_and_not_mixed_with_others() {
    let (mut labeler, batches) = labeler(Some(learned(3)));
    let mut sets = [set(&["food", "music"]), set(&["music"])].to_vec();
    let mut known = KnownVectors::new(100);
    for wanted in [1, 0] {
        let prepared = labeler.prepare_each(&sets, &mut known).unwrap();
        assert!(prepared.iter().all(Result::is_ok));
        // The first row shows how long a vector is.
        assert_eq!(batches.swap(0, Ordering::Relaxed), wanted);
    }
    let (mut by_words, _) = super::tests::labeler(Some(embedding()));
    let (food, music) = (vec![1.0, 2.0, 3.0], vec![2.0, 3.0, 4.0]);
    let vector = |numbers: &Vec<f64>| LabelVector::of(7.0, vec![numbers.clone()]);
    sets.push(set(&["chess", "food"]));
    sets.push(set(&["music", "food"]));
    for with_background in [false, true] {
        for set in &mut sets {
            set.background = with_background.then(background);
        }
        let together = labeler.prepare_each(&sets, &mut known).unwrap();
        let together: Vec<Prepared> = together.into_iter().map(Result::unwrap).collect();
        for (set, together) in sets.iter().zip(&together) {
            let alone = labeler.prepare(set).unwrap();
            assert_eq!(alone.label_vectors(), together.label_vectors());
            assert_eq!(alone.keys(), together.keys());
        }
        let of_set = |at: usize| together[at].label_vectors().unwrap();
        assert_eq!(of_set(0)[..2], [vector(&food), vector(&music)]);
        assert_eq!(of_set(3)[..2], [vector(&music), vector(&food)]);
        assert_ne!(of_set(2)[1], vector(&food), "chess has none");
        let plain = by_words.prepare(&sets[0]);
        let plain = plain.unwrap();
        assert_eq!(
            plain.label_vectors().unwrap()[2..],
            of_set(0)[2..],
            "the background has its words"
        );
    }
}

#[test]
fn learned_vectors_of_another_model_are_refused_for_every_set() {
    let (mut labeler, _) = labeler(Some(learned(2)));
    let mut known = KnownVectors::new(100);
    let sets = [set(&["chess"]), set(&["food"])];
    let errors = [
        labeler.prepare_each(&sets, &mut known).unwrap_err(),
        labeler.prepare(&sets[1]).unwrap_err(),
        labeler.check_learned().unwrap_err(),
    ];
    for error in errors {
        let is_that = matches!(
            error,
            LabelerError::LearnedWidth {
                width: 3,
                numbers: 2,
                ..
            }
        );
        assert!(is_that, "{error}");
    }
    assert!(labeler.prepare(&sets[0]).is_ok(), "they do not count there");
}
