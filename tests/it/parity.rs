//! Tests that scores and logits equal those of the reference packages, for any batch: transformers' pipelines for
//! zero-shot and text classification, and `gliclass`.
//!
//! `tools/golden.py` made the models (tiny, with random weights) and recorded the packages' results.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use serde::Deserialize;
use topicmill_core::{LabelSet, Mode};
use topicmill_score::folder::ModelFolder;
use topicmill_score::{
    Device, EngineName, EngineOptions, Labeler, LoadError, OnnxEngine, OpenedEngine,
};

use crate::support::builders;
use crate::support::engine::{has_openvino, labeler, labeler_of, one_thread, repository, score};

const TOLERANCE: f64 = 1e-4;
/// Models with a second folder, whose graph tools/model.py made from the same weights.
const MADE: [(&str, &str); 2] = [
    ("tiny-bart-mnli", "tiny-bart-made"),
    ("tiny-bert-quality", "tiny-bert-quality-made"),
];

#[derive(Debug, Deserialize)]
struct Golden {
    model: String,
    /// The mode that the text-classification pipeline uses by default.
    default_mode: Option<Mode>,
    cases: Vec<Case>,
}

#[derive(Debug, Deserialize)]
struct Case {
    name: String,
    text: String,
    labels: Vec<String>,
    #[serde(default = "any_template")]
    template: String,
    mode: Mode,
    scores: Vec<f64>,
    logits: Vec<Vec<f64>>,
}

/// Returns the template of models that read no template.
fn any_template() -> String {
    "class {}".to_owned()
}

fn label_set(labels: &[String], template: &str, mode: Mode) -> LabelSet {
    LabelSet {
        template: template.into(),
        mode,
        ..builders::label_set(labels)
    }
}

/// Returns the texts in an order that mixes long and short ones, different for each seed.
fn shuffled(mut texts: Vec<String>, seed: u64) -> Vec<String> {
    fastrand::Rng::with_seed(seed).shuffle(&mut texts);
    texts
}

fn error(found: impl Iterator<Item = f64>, wanted: &[f64]) -> f64 {
    let found: Vec<f64> = found.collect();
    assert_eq!(found.len(), wanted.len());
    let pairs = found.iter().zip(wanted);
    pairs.map(|(a, b)| (a - b).abs()).fold(0.0, f64::max)
}

/// Compares a model with the reference on all cases.
fn compare(golden: &Golden, labeler: &mut Labeler, seed: u64) {
    let mut groups: BTreeMap<_, Vec<&Case>> = BTreeMap::new();
    for case in &golden.cases {
        let group = (&case.labels, &case.template, case.mode);
        groups.entry(group).or_default().push(case);
    }
    let others: BTreeSet<&String> = golden.cases.iter().map(|case| &case.text).collect();
    for ((labels, template, mode), cases) in groups {
        let own = labeler.folder().kind.head();
        if let Some(own) = own.map(|head| LabelSet::of_classifier("own", head)) {
            assert_eq!(Some(own.mode), golden.default_mode);
            assert!(own.labels.iter().map(|label| &label.label).eq(labels));
        }
        // Texts from other cases fill the batch, but only a few, because a debug build is slow.
        let mut texts = shuffled(others.iter().map(|text| (*text).clone()).collect(), seed);
        texts.truncate(5);
        texts.extend(cases.iter().map(|case| case.text.clone()));
        let texts = shuffled(texts, seed);
        let results = score(labeler, &label_set(labels, template, mode), &texts);
        for case in cases {
            let result = &results[texts.iter().position(|text| *text == case.text).unwrap()];
            let scores = error(result.scores.scores.iter().copied(), &case.scores);
            assert_eq!(result.raw.len(), case.logits.len());
            let raw = result.raw.iter().flatten().map(|x| f64::from(*x));
            let logits = error(raw, &case.logits.concat());
            assert!(
                scores <= TOLERANCE && logits <= TOLERANCE,
                "{} `{}` with seed {seed}: scores off by {scores:.1e}, logits by {logits:.1e}",
                golden.model,
                case.name
            );
        }
    }
}

/// Compares all models in a folder of fixtures with their golden files, and calls `also` for each. Returns the number of
/// models.
fn compare_with_reference(fixtures: &str, also: impl Fn(&Golden, &Path)) -> usize {
    let fixtures = repository(fixtures);
    let mut models = 0;
    for entry in fs::read_dir(fixtures.join("golden")).unwrap() {
        let golden = fs::read(entry.unwrap().path()).unwrap();
        let golden: Golden = serde_json::from_slice(&golden).unwrap();
        let made = MADE.iter().filter(|(model, _)| *model == golden.model);
        for name in made.map(|(_, made)| *made).chain([golden.model.as_str()]) {
            let folder = fixtures.join("models").join(name);
            for (seed, budget) in [(0, 1), (1, 150), (2, 1024), (3, 50_000)] {
                compare(&golden, &mut labeler(&folder, budget), seed);
            }
            also(&golden, &folder);
            models += 1;
        }
    }
    models
}

fn on_openvino(folder: &Path) -> Labeler {
    let options = EngineOptions {
        engine: EngineName::OpenVino,
        ..one_thread()
    };
    let (folder, opened) = OpenedEngine::open(folder, None, &options).unwrap();
    Labeler::load(folder, opened.engine, 300).unwrap()
}

#[test]
fn scores_equal_the_zero_shot_pipeline_on_any_batch() {
    let models = compare_with_reference("tests/it/fixtures", |_, _| {});
    assert_eq!(models, 5);
}

#[test]
fn scores_equal_the_text_classification_pipeline_on_any_batch() {
    let models = compare_with_reference("tests/it/fixtures/classifiers", |_, _| {});
    assert_eq!(models, 5);
}

#[test]
fn scores_equal_the_gliclass_package_on_any_batch() {
    let models = compare_with_reference("tests/it/fixtures/gliclass", |golden, folder| {
        if has_openvino("parity of OpenVINO") {
            compare(golden, &mut on_openvino(folder), 4);
        }
    });
    assert_eq!(models, 3);
}

/// Returns the bits of every logit, by text.
fn bits(labeler: &mut Labeler, set: &LabelSet, texts: &[String]) -> BTreeMap<String, Vec<u32>> {
    let results = score(labeler, set, texts);
    let bits = results
        .iter()
        .map(|result| result.raw.iter().flatten().map(|x| x.to_bits()).collect());
    texts.iter().cloned().zip(bits).collect()
}

#[test]
fn logits_do_not_depend_on_post_order_or_batch_size() {
    let set = label_set(
        &["food", "chess", "climate change"].map(String::from),
        "This text is about {}.",
        Mode::Single,
    );
    let texts: Vec<String> = (0..40)
        .map(|i| format!("post {i} {}", "of words ".repeat(i * 7 % 31)))
        .collect();
    for name in ["tiny-bert-nli", "tiny-bart-mnli", "tiny-roberta-nli"] {
        let folder = repository("tests/it/fixtures/models").join(name);
        let expected = bits(&mut labeler(&folder, 1), &set, &texts);
        let logit = |bits: &u32| f64::from(f32::from_bits(*bits));
        for (seed, budget) in [(1, 1), (2, 200), (3, 1_024), (4, 50_000)] {
            let found = bits(
                &mut labeler(&folder, budget),
                &set,
                &shuffled(texts.clone(), seed),
            );
            for (text, expected) in &expected {
                let expected: Vec<f64> = expected.iter().map(logit).collect();
                // In a different batch shape, sums may be added in a different order, which changes the last bits.
                let off = error(found[text].iter().map(logit), &expected);
                assert!(
                    off <= 5e-6,
                    "{name}, {budget} tokens, `{text}`: off by {off:.1e}"
                );
            }
            if budget == 1 {
                assert_eq!(
                    found, expected,
                    "{name}: with a budget of one token, every bit is the same"
                );
            }
        }
        // For int8, a batch contains the rows of only one post, so the order of posts changes no bit.
        let mut folder = ModelFolder::open(&folder, None).unwrap();
        folder.precision = "int8".into();
        let [one, other] = [(1, 1_024), (2, 1_024)].map(|(seed, budget)| {
            let mut labeler = labeler_of(folder.clone(), budget);
            bits(&mut labeler, &set, &shuffled(texts.clone(), seed))
        });
        assert_eq!(one, other, "{name}");
    }
    // With an int8 graph, whose activations have one scale per batch, the token budget changes no bit either.
    let int8 = repository("tests/it/fixtures/models/tiny-bart-made");
    let int8 = ModelFolder::open(&int8, Some("int8")).unwrap();
    let [one, other] = [(1, 1), (2, 50_000)].map(|(seed, budget)| {
        let mut labeler = labeler_of(int8.clone(), budget);
        bits(&mut labeler, &set, &shuffled(texts.clone(), seed))
    });
    assert_eq!(one, other, "int8");
}

#[test]
fn the_default_model_separates_plain_topics() {
    let labels: Vec<String> = ["sports", "food", "climate change"]
        .map(String::from)
        .into();
    let texts: Vec<String> = [
        "The striker scored twice and our team won the cup final",
        "How long do I have to boil potatoes for a salad?",
        "CO2 emissions keep rising and the glaciers are melting",
        "",
    ]
    .map(String::from)
    .into();
    let folder = repository("models/minilm-reddit-topics");
    for mode in [Mode::Single, Mode::Multi] {
        let set = label_set(&labels, "This text is about {}.", mode);
        let alone = score(&mut labeler(&folder, 1), &set, &texts);
        let together = score(&mut labeler(&folder, 4096), &set, &texts);
        for (i, (alone, together)) in alone.iter().zip(&together).enumerate() {
            // The last text is empty.
            assert!(
                i == 3 || alone.scores.best == i,
                "{mode} {i}: {:?}",
                alone.scores
            );
            assert!(
                error(together.scores.scores.iter().copied(), &alone.scores.scores) < TOLERANCE
            );
        }
    }
}

#[test]
fn a_missing_gpu_is_an_error() {
    let model = repository("models/minilm-reddit-topics");
    // No machine has this many GPUs.
    let options = EngineOptions {
        device: Device::Cuda(99),
        ..EngineOptions::default()
    };
    let error = OnnxEngine::open(&model, None, &options).unwrap_err();
    assert!(
        matches!(error, LoadError::Cuda { device: 99, .. }),
        "{error}"
    );
    let (_, engine) = OnnxEngine::open(&model, None, &EngineOptions::default()).unwrap();
    assert_ne!(engine.chosen().device, Device::Auto);
    assert!(!engine.chosen().reason.is_empty());
}
