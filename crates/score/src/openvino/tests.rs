//! Compares OpenVINO with ONNX Runtime on the models in this repository. If a library is missing, these tests print a
//! note and pass; if `TOPICMILL_OPENVINO_TESTS` is `must`, they fail.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use super::*;
use crate::batch::MIN_ROWS;
use crate::labeler::Labeler;
use crate::library::Library;
use crate::onnx::OnnxEngine;
use topicmill_core::test_examples::set;

const MODELS: [&str; 4] = [
    "models/minilm-reddit-topics",
    "tests/it/fixtures/models/tiny-bart-made",
    "tests/it/fixtures/models/tiny-bert-nli",
    "tests/it/fixtures/models/tiny-roberta-nli",
];

/// A classifier that reads the first token.
const CLASSIFIER: &str = "tests/it/fixtures/classifiers/models/tiny-roberta-flags";

fn repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .join(path)
}

/// Returns options with both libraries, as installed by `make onnxruntime openvino`; `None` if one is missing.
fn options() -> Option<EngineOptions> {
    let venv = repository(".venv");
    let options = EngineOptions {
        device: Device::Cpu,
        threads: Some(1),
        library: Library::OnnxRuntime.find_below(&venv),
        openvino: Library::OpenVino.find_below(&venv),
        ..EngineOptions::default()
    };
    if options.library.is_some() && options.openvino.is_some() {
        return Some(options);
    }
    let must = std::env::var("TOPICMILL_OPENVINO_TESTS").is_ok_and(|set| set == "must");
    assert!(!must, "run `make onnxruntime openvino` first");
    writeln!(
        std::io::stderr(),
        "*** NOT RUN: run `make onnxruntime openvino` first"
    )
    .unwrap();
    None
}

/// Builds rows of these lengths; equal lengths give equal rows.
fn batch(folder: &ModelFolder, lengths: &[usize]) -> Batch {
    let size = |n: usize| u32::try_from(n).unwrap();
    let vocab = size(folder.vocab_size.unwrap_or(1_000));
    let rows = lengths.iter().map(|len| {
        (0..size(*len)).map(move |i| (5 + (i * 7_919 + size(*len) * 31) % (vocab - 5), 0))
    });
    let width = *lengths.iter().max().unwrap();
    Batch::new(rows, width, folder.pad_id.unwrap_or_default())
}

fn max_difference(a: &[f32], b: &[f32]) -> f32 {
    assert_eq!(a.len(), b.len());
    let differences = a.iter().zip(b).map(|(a, b)| (a - b).abs());
    differences.fold(0.0, f32::max)
}

#[test]
fn results_agree_with_onnx_runtime_on_every_kind_of_graph() {
    let Some(options) = options() else { return };
    for model in MODELS {
        let dir = repository(model);
        let (folder, mut onnx) = OnnxEngine::open(&dir, None, &options).unwrap();
        let (same, mut openvino) = OpenVinoEngine::open(&dir, None, &options).unwrap();
        assert_eq!(folder, same, "both engines open the same model");
        let batch = batch(&folder, &[40, 17, 3]);
        let (a, b) = (onnx.infer(&batch).unwrap(), openvino.infer(&batch).unwrap());
        assert_eq!((a.rows, a.width), (b.rows, b.width), "{model}");
        let off = max_difference(&a.data, &b.data);
        assert!(off < 1e-4, "{model}: {off}");
    }
}

#[test]
fn a_row_gets_the_same_result_alone_and_with_longer_rows() {
    let Some(options) = options() else { return };
    for model in MODELS {
        let (folder, mut engine) =
            OpenVinoEngine::open(&repository(model), None, &options).unwrap();
        let alone = engine.infer(&batch(&folder, &[12])).unwrap();
        for lengths in [
            &[12, 12][..],
            &[12, 5, 3, 30],
            &[12, 60, 60, 60, 60, 60, 60, 60],
        ] {
            let among = engine.infer(&batch(&folder, lengths)).unwrap();
            let off = max_difference(alone.row(0), among.row(0));
            assert!(off < 1e-5, "{model} among {lengths:?}: {off}");
        }
    }
}

#[test]
fn a_rounded_row_gets_the_same_result_with_any_number_of_equally_wide_rows() {
    let Some(options) = options() else { return };
    let modes = Rounding::reduced_modes().map(|mode| (MODELS[0], mode, 1));
    let classifier = (CLASSIFIER, Rounding::Bf16, MIN_ROWS);
    // On an Intel Xeon with AMX, the last layer sums 31 rows of 64 tokens in a different order than 8 rows: the logits
    // differ by 2.4e-7. On an AMD EPYC, they are equal.
    let is_intel =
        fs::read_to_string("/proc/cpuinfo").is_ok_and(|cpu| cpu.contains("GenuineIntel"));
    let allowed = if is_intel { 1e-6 } else { 0.0 };
    for (model, mode, least) in modes.chain([classifier]) {
        let name = mode.to_string();
        let (folder, mut engine) =
            OpenVinoEngine::open(&repository(model), Some(&name), &options).unwrap();
        assert_eq!(folder.precision, name);
        for len in [16, 20, 64] {
            let alone = engine.infer(&batch(&folder, &vec![len; least])).unwrap();
            for rows in [least + 1, least + 2, least + 4, 31] {
                let among = engine.infer(&batch(&folder, &vec![len; rows])).unwrap();
                let off = max_difference(alone.row(0), among.row(0));
                assert!(
                    off <= allowed,
                    "{model} in {mode}: {rows} rows of {len} tokens: {off}"
                );
            }
        }
    }
}

#[test]
fn a_rounded_score_does_not_depend_on_its_batch() {
    let Some(options) = options() else { return };
    let set = set(&["cooking", "astronomy", "trade unions"]);
    let texts: Vec<String> = (0..60)
        .map(|words| "stars and soup, ".repeat(words % 17) + &"!".repeat(words / 20))
        .collect();
    for mode in Rounding::reduced_modes() {
        let name = mode.to_string();
        let (folder, engine) =
            OpenVinoEngine::open(&repository(MODELS[0]), Some(&name), &options).unwrap();
        let mut labeler = Labeler::load(folder, Box::new(engine), 700).unwrap();
        let prepared = labeler.prepare(&set).unwrap();
        let mut score = |texts: &[String]| {
            let scores = labeler.score_all(&prepared, texts, &[], &|| false).unwrap();
            let scores = scores.unwrap().into_iter();
            scores.map(|it| it.unwrap().raw).collect::<Vec<_>>()
        };
        let among = score(&texts);
        assert_eq!(among.len(), texts.len());
        for (text, among) in texts.iter().zip(&among) {
            let alone = &score(std::slice::from_ref(text))[0];
            assert_eq!(alone, among, "{mode}: {text:?}");
        }
    }
}

#[test]
fn a_damaged_graph_is_reported_in_one_sentence() {
    let Some(options) = options() else { return };
    let dir = repository(MODELS[2]);
    let mut folder = ModelFolder::open(&dir, None).unwrap();
    let scratch = tempfile::tempdir().unwrap();
    folder.graph = scratch.path().join("model.onnx");
    let whole = std::fs::read(dir.join("model.onnx")).unwrap();
    for (bytes, what) in [
        (&whole[..whole.len() / 2], "cut off"),
        (&b"no graph"[..], "no graph"),
        (&[], "empty"),
    ] {
        std::fs::write(&folder.graph, bytes).unwrap();
        let error = OpenVinoEngine::load_unchecked(&folder, &options)
            .err()
            .unwrap();
        let message = error.to_string();
        assert!(
            matches!(error, LoadError::Compile { .. }),
            "{what}: {message}"
        );
        assert!(
            message.len() < 400 && !message.contains("Exception from"),
            "{message}"
        );
    }
}

#[test]
fn ids_outside_the_vocabulary_are_rejected() {
    let Some(options) = options() else { return };
    let (folder, mut engine) =
        OpenVinoEngine::open(&repository(MODELS[2]), None, &options).unwrap();
    let mut batch = batch(&folder, &[4]);
    batch.ids[2] = i64::try_from(folder.vocab_size.unwrap()).unwrap();
    assert!(matches!(
        engine.infer(&batch),
        Err(EngineError::Token { .. })
    ));
    engine.restart().unwrap();
    batch.ids[2] = 1;
    assert_eq!(engine.infer(&batch).unwrap().rows, 1);
}

#[test]
fn unsupported_operators_are_named_without_source_locations() {
    let message = "Exception from src/inference/src/cpp/core.cpp:132:\nException from \
                src/inference/src/dev/plugin.cpp:59:\nCheck 'false' failed at \
                src/frontends/common_translators/src/unconverted_ops_report.cpp:151:\nFrontEnd API failed with \
                OpConversionFailure:\nModel wasn't fully converted.\nSummary:\n-- No conversion rule found for \
                operations: com.microsoft.PackedMultiHeadAttention\n\n\n";
    assert_eq!(
        in_one_line(message),
        "the operators com.microsoft.PackedMultiHeadAttention are not supported"
    );
    let message =
        "Exception from src/a.cpp:1:\nCheck 'x' failed at src/b.cpp:2:\nThe file is cut off.\n";
    assert_eq!(in_one_line(message), "The file is cut off.");
}
