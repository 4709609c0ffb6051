//! The labeler with a scripted engine: what it asks for, what it hands back, what it does when it fails.

use super::*;
use crate::folder::ModelKind;
use crate::labels::LabelSet;
use crate::scripted::{Scripted, nli_folder, set};

fn labeler(engine: Scripted, budget: usize) -> Labeler {
    Labeler::load(nli_folder(), Box::new(engine), budget).unwrap()
}

fn texts() -> Vec<String> {
    (0..40)
        .map(|i| format!("post {i} {}", "word ".repeat(i * 7 % 90)))
        .chain([String::new()])
        .collect()
}

/// The first token of a word.
fn id_of(word: &str) -> i64 {
    let encoder = labeler(Scripted::default(), 1).encoder();
    i64::from(encoder.single(&encoder.encode_whole(word).unwrap()).ids[1])
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
                "text {text} came twice"
            );
        })
        .unwrap();
    assert_eq!(ended, Ended::Done);
    results
}

#[test]
fn results_do_not_depend_on_the_budget_or_on_batch_mates() {
    let (set, texts) = (set(&["sports", "food", "climate change"]), texts());
    let expected = score(&mut labeler(Scripted::default(), 1), &set, &texts);
    for budget in [100, 1000, 100_000] {
        assert_eq!(
            score(&mut labeler(Scripted::default(), budget), &set, &texts),
            expected
        );
    }
    for (text, expected) in texts.iter().zip(&expected) {
        let alone = score(
            &mut labeler(Scripted::default(), 4096),
            &set,
            std::slice::from_ref(text),
        );
        assert_eq!(&alone[0], expected);
    }
    let result = expected[0].as_ref().unwrap().as_ref().unwrap();
    assert_eq!((result.raw.len(), result.raw[0].len()), (3, 3));
    assert!((result.logits[1].unwrap().entailment - result.raw[1][2]).abs() < f32::EPSILON);
}

#[test]
fn only_wanted_pairs_are_computed_and_those_left_out_score_nothing() {
    let (set, texts) = (set(&["sports", "food", "climate change"]), texts());
    let whole = score(&mut labeler(Scripted::default(), 4096), &set, &texts);
    let whole = |text: usize| whole[text].clone().unwrap().unwrap();
    let mut labeler = labeler(Scripted::default(), 4096);
    let prepared = labeler.prepare(&set).unwrap();
    let encoded = labeler.encoder().encode(&texts).unwrap();
    let pairs: Vec<Pairs> = (0..texts.len())
        .map(|text| {
            let known = Pair::Known(whole(text).logits[2].unwrap());
            vec![Pair::LeftOut, Pair::Wanted, known]
        })
        .collect();
    let mut seen = 0;
    labeler
        .score(&prepared, &encoded, &pairs, &|| false, &mut |text, one| {
            let (one, whole) = (one.unwrap(), whole(text));
            assert_eq!(one.logits[0], None);
            assert_eq!(one.logits[1..], whole.logits[1..]);
            assert_eq!(one.raw, [vec![], whole.raw[1].clone(), vec![]]);
            assert!(one.scores.scores[0].abs() < f64::EPSILON);
            assert!((one.scores.scores[1..].iter().sum::<f64>() - 1.0).abs() < 1e-9);
            if whole.scores.best > 0 {
                assert_eq!(one.scores.best, whole.scores.best);
            }
            seen += 1;
        })
        .unwrap();
    assert_eq!(seen, texts.len());
    let tokens = encoded.iter().zip(&pairs);
    let tokens: f64 = tokens
        .map(|(text, pairs)| labeler.tokens(&prepared, text, pairs))
        .sum();
    #[expect(clippy::cast_precision_loss, reason = "a few tokens")]
    let computed = labeler.take_computed().tokens as f64;
    assert!((computed - tokens).abs() < 0.5, "one row a text");
}

#[test]
fn without_memory_batches_are_halved_and_nothing_changes() {
    let (set, texts) = (set(&["sports", "food"]), texts());
    let expected = score(&mut labeler(Scripted::default(), 4096), &set, &texts);
    let mut small = labeler(
        Scripted {
            memory: 300,
            ..Scripted::default()
        },
        4096,
    );
    assert_eq!(score(&mut small, &set, &texts), expected);
    assert!(small.budget <= 512, "{}", small.budget);
}

#[test]
fn few_shapes_change_no_score_whatever_fails() {
    let (set, texts) = (set(&["sports", "food", "climate change"]), texts());
    let few = |memory| Scripted {
        few_shapes: true,
        memory,
        ..Scripted::default()
    };
    for memory in [usize::MAX, 600] {
        let mut any = labeler(Scripted::default(), 1000);
        let expected = score(&mut any, &set, &texts);
        let mut found = labeler(few(memory), 1000);
        assert_eq!(score(&mut found, &set, &texts), expected, "{memory}");
        let (any, found) = (any.take_computed(), found.take_computed());
        assert_eq!(found.tokens, any.tokens);
        // What fills batches up counts, wherever it comes from.
        assert!(found.padded_tokens > any.padded_tokens, "{found:?}");
        assert_eq!(found.oom_splits > 0, memory == 600, "{found:?}");
    }
    let folder = nli_folder();
    let window = folder.max_tokens;
    let of = |engine| labeler(engine, 1000).shapes();
    assert_eq!(of(few(usize::MAX)), Shapes::Few { window });
    assert_eq!(of(Scripted::default()), Shapes::Any);
}

#[test]
fn a_text_that_never_fits_or_gives_no_numbers_fails_alone() {
    let (set, texts) = (set(&["sports", "food"]), texts());
    let mut expected = score(&mut labeler(Scripted::default(), 4096), &set, &texts);
    let found = score(
        &mut labeler(
            Scripted {
                memory: 90,
                ..Scripted::default()
            },
            4096,
        ),
        &set,
        &texts,
    );
    let failed = found
        .iter()
        .filter(|r| matches!(r, Some(Err(TextError::OutOfMemory(_)))))
        .count();
    assert!(failed > 0 && failed < texts.len());
    for (found, expected) in found.iter().zip(&expected) {
        assert!(found == expected || matches!(found, Some(Err(TextError::OutOfMemory(_)))));
    }

    let poison = Scripted {
        poison: id_of("17"),
        ..Scripted::default()
    };
    let found = score(&mut labeler(poison, 4096), &set, &texts);
    expected[17] = Some(Err(TextError::NotFinite));
    assert_eq!(found, expected);
}

#[test]
fn texts_on_which_the_engine_fails_fail_alone_however_many() {
    let set = set(&["sports", "food"]);
    let mut texts = texts();
    let expected = score(&mut labeler(Scripted::default(), 4096), &set, &texts);
    let cursed = || Scripted {
        curse: id_of("17"),
        ..Scripted::default()
    };
    let failed = Some(Err(TextError::Engine(EngineError::Run("cursed".into()))));
    let found = score(&mut labeler(cursed(), 4096), &set, &texts);
    for (i, found) in found.iter().enumerate() {
        assert_eq!(found, if i == 17 { &failed } else { &expected[i] }, "{i}");
    }
    // A backlog of nothing else must come to its end too.
    texts.fill("post 17".into());
    let found = score(&mut labeler(cursed(), 4096), &set, &texts);
    assert!(found.iter().all(|found| *found == failed));
}

#[test]
fn an_engine_that_computes_nothing_any_more_ends_the_run_and_fails_no_text() {
    let broken = Scripted {
        life: 2,
        ..Scripted::default()
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
        matches!(&error, LabelerError::Engine(EngineError::Run(said)) if said == "no device"),
        "{error}"
    );
}

#[test]
fn a_stop_is_heard_between_batches() {
    let mut labeler = labeler(Scripted::default(), 64);
    let set = set(&["sports", "food"]);
    let prepared = labeler.prepare(&set).unwrap();
    let encoded = labeler.encoder().encode(&texts()).unwrap();
    let asked = std::cell::Cell::new(0);
    let stop = || {
        asked.set(asked.get() + 1);
        asked.get() > 3
    };
    let mut reported = 0;
    let ended = labeler
        .score(&prepared, &encoded, &[], &stop, &mut |_, _| reported += 1)
        .unwrap();
    assert_eq!(ended, Ended::Stopped);
    assert!(reported <= 3);
}

#[test]
fn a_label_too_long_for_the_window_is_named() {
    let mut labeler = labeler(Scripted::default(), 4096);
    let long = "word ".repeat(130);
    let error = labeler.prepare(&set(&["food", &long])).unwrap_err();
    assert!(
        matches!(error, LabelerError::TooLong { window: 128, tokens, .. } if tokens > 130),
        "{error}"
    );
}

#[test]
fn a_graph_of_another_shape_is_an_error() {
    let mut labeler = labeler(
        Scripted {
            classes: 2,
            ..Scripted::default()
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
fn an_int8_model_never_mixes_texts_in_a_batch() {
    let mut folder = nli_folder();
    folder.precision = "int8".into();
    let texts = texts();
    let set = set(&["sports", "food"]);
    let mut labeler = Labeler::load(folder, Box::new(Scripted::default()), 100_000).unwrap();
    let prepared = labeler.prepare(&set).unwrap();
    let encoded = labeler.encoder().encode(&texts).unwrap();
    let asked = std::cell::Cell::new(0);
    let count = || {
        asked.set(asked.get() + 1);
        false
    };
    labeler
        .score(&prepared, &encoded, &[], &count, &mut |_, _| {})
        .unwrap();
    assert_eq!(asked.get(), texts.len());
}

#[test]
fn an_embedding_model_compares_a_text_with_the_mean_of_its_labels_texts() {
    let mut folder = nli_folder();
    folder.kind = ModelKind::Embedding(crate::folder::EmbeddingHead {
        output: "v".into(),
        softmax_scale: 1.0,
        sigmoid_scale: 1.0,
        sigmoid_bias: 0.0,
        learned: Arc::default(),
    });
    let engine = Scripted {
        classes: 5,
        ..Scripted::default()
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
    // A mean of two unit vectors, scaled to length 1, lies between them: both cosines are equal, but for the
    // rounding of five numbers to steps of 3e-5 at most.
    assert!(
        (cosine(0) - cosine(1)).abs() < 5e-5 && cosine(0) > 0.0,
        "{} {}",
        cosine(0),
        cosine(1)
    );
}
