//! Tests of the labeler with a scripted engine.

use super::*;
use crate::test_engine::{ScriptedEngine, nli_folder};
use topicmill_core::test_examples::{embedding, set};

fn labeler(engine: ScriptedEngine, budget: usize) -> Labeler {
    Labeler::load(nli_folder(), Box::new(engine), budget).unwrap()
}

fn texts() -> Vec<String> {
    (0..40)
        .map(|i| format!("post {i} {}", "word ".repeat(i * 7 % 90)))
        .chain([String::new()])
        .collect()
}

/// Returns the id of a word's first token.
fn id_of(word: &str) -> i64 {
    let encoder = labeler(ScriptedEngine::default(), 1).encoder();
    let text = encoder.encode_whole(word).unwrap();
    i64::from(encoder.single(&text).ids().nth(1).unwrap().0)
}

fn score(
    labeler: &mut Labeler,
    set: &LabelSet,
    texts: &[String],
) -> Vec<Option<Result<TextResult, TextError>>> {
    let prepared = labeler.prepare(set).unwrap();
    let encoded = labeler.encoder().encode(texts).unwrap();
    let mut results = vec![None; texts.len()];
    let ended = labeler
        .score(&prepared, &encoded, &[], &|| false, &mut |text, result| {
            assert!(
                results[text].replace(result).is_none(),
                "text {text} was reported twice"
            );
        })
        .unwrap();
    assert_eq!(ended, Completion::Done);
    results
}

#[test]
fn out_of_memory_halves_batches_and_changes_no_score() {
    let (set, texts) = (set(&["sports", "food"]), texts());
    let expected = score(&mut labeler(ScriptedEngine::default(), 4096), &set, &texts);
    let mut small = labeler(
        ScriptedEngine {
            max_batch_tokens: 300,
            ..ScriptedEngine::default()
        },
        4096,
    );
    assert_eq!(score(&mut small, &set, &texts), expected);
    assert!(small.budget <= 512, "{}", small.budget);
}

#[test]
fn few_shapes_change_no_score_even_after_failures() {
    let (set, texts) = (set(&["sports", "food", "climate change"]), texts());
    let few = |memory| ScriptedEngine {
        few_shapes: true,
        max_batch_tokens: memory,
        ..ScriptedEngine::default()
    };
    for memory in [usize::MAX, 600] {
        let mut any = labeler(ScriptedEngine::default(), 1000);
        let expected = score(&mut any, &set, &texts);
        let mut found = labeler(few(memory), 1000);
        assert_eq!(score(&mut found, &set, &texts), expected, "{memory}");
        let (any, found) = (any.take_stats(), found.take_stats());
        assert_eq!(found.tokens, any.tokens);
        // Padding counts, whether from planning or from the shape.
        assert!(found.padded_tokens > any.padded_tokens, "{found:?}");
        assert_eq!(found.oom_splits > 0, memory == 600, "{found:?}");
    }
    let folder = nli_folder();
    let window = folder.max_tokens;
    let of = |engine| labeler(engine, 1000).shapes();
    assert_eq!(of(few(usize::MAX)), Shapes::Few { window });
    assert_eq!(of(ScriptedEngine::default()), Shapes::Any);
}

#[test]
fn a_text_that_runs_out_of_memory_or_yields_nan_fails_alone() {
    let (set, texts) = (set(&["sports", "food"]), texts());
    let mut expected = score(&mut labeler(ScriptedEngine::default(), 4096), &set, &texts);
    let memory = ScriptedEngine {
        max_batch_tokens: 90,
        ..ScriptedEngine::default()
    };
    let mut small = labeler(memory, 4096);
    let found = score(&mut small, &set, &texts);
    assert!(small.budget <= 90, "halved for good: {}", small.budget);
    let failed = found
        .iter()
        .filter(|r| matches!(r, Some(Err(TextError::OutOfMemory(_)))))
        .count();
    assert!(failed > 0 && failed < texts.len());
    assert_eq!(found.len(), expected.len());
    for (found, expected) in found.iter().zip(&expected) {
        assert!(found == expected || matches!(found, Some(Err(TextError::OutOfMemory(_)))));
    }

    let nan = ScriptedEngine {
        nan_id: id_of("17"),
        ..ScriptedEngine::default()
    };
    let found = score(&mut labeler(nan, 4096), &set, &texts);
    expected[17] = Some(Err(TextError::NotFinite));
    assert_eq!(found, expected);
}

#[test]
fn a_text_that_makes_the_engine_fail_fails_alone() {
    let set = set(&["sports", "food"]);
    let mut texts = texts();
    let expected = score(&mut labeler(ScriptedEngine::default(), 4096), &set, &texts);
    let failing = || ScriptedEngine {
        failing_id: id_of("17"),
        ..ScriptedEngine::default()
    };
    let failed = Some(Err(TextError::Engine(EngineError::Run("scripted".into()))));
    let found = score(&mut labeler(failing(), 4096), &set, &texts);
    for (i, found) in found.iter().enumerate() {
        assert_eq!(found, if i == 17 { &failed } else { &expected[i] }, "{i}");
    }
    // A backlog of failing texts must also finish.
    texts.fill("post 17".into());
    let found = score(&mut labeler(failing(), 4096), &set, &texts);
    assert!(found.iter().all(|found| *found == failed));
}

#[test]
fn a_broken_engine_ends_the_run_and_fails_no_text() {
    let broken = ScriptedEngine {
        batches_left: 2,
        ..ScriptedEngine::default()
    };
    let mut labeler = labeler(broken, 256);
    let prepared = labeler.prepare(&set(&["sports", "food"])).unwrap();
    let encoded = labeler.encoder().encode(&texts()).unwrap();
    let error = labeler
        .score(&prepared, &encoded, &[], &|| false, &mut |_, result| {
            result.unwrap();
        })
        .unwrap_err();
    assert!(
        matches!(&error, LabelerError::Engine(EngineError::Run(message)) if message == "no device"),
        "{error}"
    );
}

#[test]
fn a_label_too_long_for_the_window_is_named_in_the_error() {
    let mut labeler = labeler(ScriptedEngine::default(), 4096);
    let long = "word ".repeat(130);
    let error = labeler.prepare(&set(&["food", &long])).unwrap_err();
    assert!(
        matches!(error, LabelerError::TooLong { window: 128, tokens, .. } if tokens > 130),
        "{error}"
    );
}

#[test]
fn an_unexpected_output_shape_is_an_error() {
    let mut labeler = labeler(
        ScriptedEngine {
            classes: 2,
            ..ScriptedEngine::default()
        },
        4096,
    );
    let prepared = labeler.prepare(&set(&["food"])).unwrap();
    let encoded = labeler.encoder().encode(&texts()).unwrap();
    let error = labeler
        .score(&prepared, &encoded, &[], &|| false, &mut |_, _| {})
        .unwrap_err();
    assert!(
        matches!(error, LabelerError::Engine(EngineError::Shape(_))),
        "{error}"
    );
}

#[test]
fn a_label_vector_is_the_mean_of_its_texts() {
    let mut folder = nli_folder();
    folder.kind = ModelKind::Embedding(embedding(1.0, 1.0, 0.0));
    let engine = ScriptedEngine {
        classes: 5,
        ..ScriptedEngine::default()
    };
    let mut labeler = Labeler::load(folder, Box::new(engine), 4096).unwrap();
    let set = set(&["sports", "food"]);
    assert_eq!(
        labeler.prepare(&set).unwrap().keys()[0],
        "This text is about sports.\nOf it."
    );
    let texts = ["This text is about sports.".to_owned(), "Of it.".to_owned()];
    let results = score(&mut labeler, &set, &texts);
    let cosine = |i: usize| results[i].as_ref().unwrap().as_ref().unwrap().raw[0][0];
    // The normalized mean of two unit vectors has the same cosine with both, up to the rounding of five numbers to
    // steps of at most 3e-5.
    assert!(
        (cosine(0) - cosine(1)).abs() < 5e-5 && cosine(0) > 0.0,
        "{} {}",
        cosine(0),
        cosine(1)
    );
}
