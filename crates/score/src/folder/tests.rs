//! Tests for the model folder.

use std::fs;

use super::config::DEFAULT_MAX_TOKENS;
use super::*;
use topicmill_core::model_kind::NliClasses;
use topicmill_core::table;

const BART: &str = r#"{"model_type":"bart","max_position_embeddings":1024,"vocab_size":50265,"pad_token_id":1,
    "id2label":{"0":"contradiction","1":"neutral","2":"entailment"},
    "label2id":{"contradiction":0,"entailment":2,"neutral":1}}"#;

fn folder(files: &[(&str, &str)]) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    for (name, content) in files {
        let path = dir.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }
    dir
}

fn open(files: &[(&str, &str)], precision: Option<&str>) -> Result<ModelFolder, ModelError> {
    let dir = folder(files);
    ModelFolder::open(dir.path(), precision)
}

fn nli(config: &str) -> Result<NliClasses, String> {
    let config: Config = serde_json::from_str(config).unwrap();
    match config.kind(Some("nli"))? {
        ModelKind::Nli(classes) => Ok(classes),
        _ => unreachable!(),
    }
}

fn max_tokens(config: &str, tokenizer: &str) -> usize {
    serde_json::from_str::<Config>(config)
        .unwrap()
        .max_tokens(&serde_json::from_str(tokenizer).unwrap())
}

#[test]
fn classes_are_selected_like_the_reference() {
    let of = |labels: &str| nli(&format!(r#"{{"label2id":{labels}}}"#));
    let parts = |c: NliClasses| (c.count, c.entailment, c.contradiction, c.neutral);
    assert_eq!(parts(nli(BART).unwrap()), (3, 2, 0, Some(1)));
    for (labels, classes) in table! {
        // Entailment comes first, so the last class counts as contradiction.
        r#"{"entailment":0,"neutral":1,"contradiction":2}"#, (3, 0, 2, Some(1));
        // The position decides, not the name: class 0 counts as contradiction, although class 2 has that name.
        r#"{"neutral":0,"ENTAILMENT":1,"contradiction":2}"#, (3, 1, 0, Some(2));
        r#"{"entailment":0,"not_entailment":1}"#, (2, 0, 1, None);
    } {
        assert_eq!(parts(of(labels).unwrap()), classes, "{labels}");
    }
    let two = nli(r#"{"id2label":{"0":"not_entailment","1":"entailment"}}"#).unwrap();
    assert_eq!(two.entailment, 1);
    let empty = nli(r#"{"label2id":{},"id2label":{"0":"Entailment (yes)","1":"no"}}"#).unwrap();
    assert_eq!(empty.entailment, 0);
    assert!(
        of(r#"{"positive":0,"negative":1}"#)
            .unwrap_err()
            .contains("`positive`")
    );
    assert!(of(r#"{"entailment":0}"#).is_err());
    assert!(of(r#"{"a":0,"b":1,"entailment":7}"#).is_err());
    assert!(nli("{}").unwrap_err().contains("label2id"));
}

#[test]
fn the_kind_follows_from_the_class_names() {
    let kind = |config: &str| {
        let config: Config = serde_json::from_str(config).unwrap();
        config.kind(None).map(|kind| kind.as_str())
    };
    assert_eq!(kind(BART), Ok("nli"));
    assert_eq!(
        kind(r#"{"id2label":{"0":"neg","1":"pos"}}"#),
        Ok("classifier")
    );
    assert_eq!(
        kind(r#"{"architectures":["BertForSequenceClassification"]}"#),
        Ok("classifier")
    );
    // A model without a head has no labels.
    assert!(kind(r#"{"architectures":["BertModel"]}"#).is_err());
    let error = kind(r#"{"architectures":["BertForTokenClassification"],"id2label":{"0":"O"}}"#);
    assert!(error.unwrap_err().contains("BertForTokenClassification"));
    let config: Config = serde_json::from_str(BART).unwrap();
    assert_eq!(config.kind(Some("classifier")).unwrap().width(), Some(3));
}

#[test]
fn the_manifest_decides_the_kind_if_there_is_one() {
    let config = r#"{"id2label":{"0":"entailment","1":"b","2":"c","3":"d"}}"#;
    let manifest = "format = 1\nkind = \"classifier\"\nmax_tokens = 16\nvocab_size = 9\nclasses = [\"a\"]\n\
                    files = {}\ngraphs = {}\n[contract]\noutput = \"logits\"\npad_id = 1\nmasked = 0.0\n\
                    [[vectors]]\npremise = \"\"\ninput_ids = [1]\nlogits = [0.0]\n";
    let dir = folder(&[("config.json", config), (MANIFEST_FILE, manifest)]);
    assert_eq!(check_config(dir.path()).unwrap(), None);
    fs::remove_file(dir.path().join(MANIFEST_FILE)).unwrap();
    let error = check_config(dir.path()).unwrap_err().to_string();
    assert!(error.contains("2 or 3 classes"), "{error}");
}

#[test]
fn the_token_limit_is_the_smallest_declared() {
    assert_eq!(max_tokens(BART, r#"{"model_max_length":1024}"#), 1024);
    assert_eq!(max_tokens(BART, r#"{"model_max_length":1e30}"#), 1024);
    assert_eq!(max_tokens(BART, r#"{"model_max_length":512}"#), 512);
    assert_eq!(
        max_tokens(
            r#"{"model_type":"roberta","max_position_embeddings":514}"#,
            "{}"
        ),
        512
    );
    assert_eq!(max_tokens("{}", "{}"), DEFAULT_MAX_TOKENS);
    let own =
        r#"{"max_position_embeddings":512,"zero_shot":{"mode":"embedding","max_length":128}}"#;
    assert_eq!(max_tokens(own, r#"{"model_max_length":512}"#), 128);
}

#[test]
fn a_graph_is_selected_by_name_or_if_it_is_the_only_one() {
    let base = [("config.json", BART), ("tokenizer.json", "{}")];
    let graph = |names: &[&'static str], precision| {
        let mut files = base.to_vec();
        files.extend(names.iter().map(|name| (*name, "z\u{5}graph")));
        let dir = folder(&files);
        let folder = ModelFolder::open(dir.path(), precision)?;
        let path = folder.graph.strip_prefix(dir.path()).unwrap().display();
        Ok::<_, ModelError>((path.to_string(), folder.precision))
    };
    for (names, precision, selected) in table! {
        &["model.onnx", "model_fp16.onnx"][..], None, ("model.onnx", "fp32");
        &["onnx/model.onnx", "onnx/model_q4.onnx"], None, ("onnx/model.onnx", "fp32");
        &["bart.onnx"], None, ("bart.onnx", "fp32");
        &["model.onnx", "onnx/model_fp16.onnx"], Some("fp16"), ("onnx/model_fp16.onnx", "fp16");
        &["model.onnx", "onnx/model_quantized.onnx"], Some("int8"), ("onnx/model_quantized.onnx", "int8");
    } {
        let (path, precision) = graph(names, precision).unwrap();
        assert_eq!((&*path, &*precision), selected, "{names:?}");
    }
    let error = graph(&["a.onnx", "b.onnx"], None).unwrap_err();
    assert!(error.to_string().contains("(a.onnx, b.onnx)"), "{error}");
    let error = graph(&["model.onnx"], Some("fp16"))
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("model_fp16.onnx") && error.contains("there is model.onnx"),
        "{error}"
    );
    assert!(matches!(graph(&[], None), Err(ModelError::NoFile(_, file)) if file == "*.onnx"));
}

#[test]
fn the_hash_covers_the_files_that_affect_a_score() {
    let base = [
        ("config.json", BART),
        ("tokenizer.json", "{}"),
        ("model.onnx", "z\u{5}graph"),
    ];
    let with =
        |extra: &[(&'static str, &'static str)]| open(&[&base[..], extra].concat(), None).unwrap();
    let plain = with(&[]);
    assert_eq!(plain.tokenizer_hash, hex(&Sha256::digest("{}")));
    assert_eq!(
        plain.manifest_hash,
        with(&[("README.md", "words"), ("model_fp16.onnx", "other")]).manifest_hash
    );
    for changed in [
        ("config.json", r#"{"label2id":{"entailment":0,"no":1}}"#),
        ("tokenizer.json", "{ }"),
        ("model.onnx", "z\u{6}graph2"),
        ("model.onnx_data", "weights"),
        ("model.onnx.data", "weights"),
        ("tokenizer_config.json", r#"{"model_max_length":64}"#),
    ] {
        assert_ne!(
            plain.manifest_hash,
            with(&[changed]).manifest_hash,
            "{}",
            changed.0
        );
    }
}

/// Creates a model folder without a manifest, with one of the repository's graphs.
fn folder_with_graph(graph: &str) -> tempfile::TempDir {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/it/fixtures");
    let dir = tempfile::tempdir().unwrap();
    for name in ["config.json", "tokenizer.json", "tokenizer_config.json"] {
        let file = fixtures.join("models/tiny-bart-made").join(name);
        fs::copy(file, dir.path().join(name)).unwrap();
    }
    fs::copy(fixtures.join(graph), dir.path().join("model.onnx")).unwrap();
    dir
}

const INT8_GRAPH: &str = "models/tiny-bart-made/cpu-int8.onnx";
const FLOAT32_GRAPH: &str = "models/tiny-bart-made/cpu-fp32.onnx";

#[test]
fn int8_graphs_are_recognised_by_their_operators() {
    let dir = folder_with_graph(INT8_GRAPH);
    let folder = ModelFolder::open(dir.path(), None).unwrap();
    assert_eq!(folder.precision, "int8");
    assert!(folder.depends_on_batch());
    let named = ModelFolder::open(dir.path(), Some("int8")).unwrap();
    assert_eq!(named.manifest_hash, folder.manifest_hash);
    for precision in ["fp32", "bf16"] {
        let error = ModelFolder::open(dir.path(), Some(precision)).unwrap_err();
        assert!(error.to_string().contains("operators are int8"), "{error}");
    }
}

#[test]
fn a_float32_graph_without_int8_weights_has_no_int8_mode() {
    let dir = folder_with_graph(FLOAT32_GRAPH);
    let folder = ModelFolder::open(dir.path(), None).unwrap();
    assert_eq!(folder.precision, "fp32");
    // The graph is the same, but its scores must not be mixed with float32 scores.
    let rounded = ModelFolder::open(dir.path(), Some("bf16")).unwrap();
    assert_ne!(rounded.manifest_hash, folder.manifest_hash);
    for (precision, message) in [
        ("int8-g32", "not stored in int8"),
        ("int8", "model_int8.onnx"),
    ] {
        let error = ModelFolder::open(dir.path(), Some(precision)).unwrap_err();
        assert!(error.to_string().contains(message), "{error}");
    }
}

#[test]
fn each_mode_of_a_graph_has_its_own_hash() {
    // 8-bit weights alone do not count: the graph computes in float32.
    let shipped = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../models/minilm-reddit-topics");
    let exact = ModelFolder::open(&shipped, None).unwrap();
    assert_eq!(exact.precision, "fp32");
    let mut hashes = vec![exact.manifest_hash];
    for mode in Rounding::reduced_modes() {
        let name = mode.to_string();
        let rounded = ModelFolder::open(&shipped, Some(&name)).unwrap();
        assert_eq!((rounded.precision, rounded.rounding), (name, mode));
        hashes.push(rounded.manifest_hash);
    }
    // Without an int8 graph, `int8` is the most accurate int8 mode.
    let int8 = ModelFolder::open(&shipped, Some("int8")).unwrap();
    assert_eq!(int8.manifest_hash, hashes[2]);
    hashes.sort_unstable();
    hashes.dedup();
    assert_eq!(hashes.len(), 4);
}

#[test]
fn a_fixed_shape_limits_the_tokens_in_a_text() {
    let dir = folder_with_graph("classifiers/odd/fixed.onnx");
    let folder = ModelFolder::open(dir.path(), None).unwrap();
    assert_eq!((folder.fixed.rows, folder.fixed.width), (Some(1), Some(16)));
    assert_eq!(folder.max_tokens, 16);
    let dir = folder_with_graph(FLOAT32_GRAPH);
    let folder = ModelFolder::open(dir.path(), None).unwrap();
    assert!(!folder.fixed.is_fixed());
}

#[test]
fn a_shape_too_large_for_memory_is_rejected() {
    for (shape, rejected) in [
        (&[-1, 160][..], false),
        (&[2_048, 512], false),
        (&[1 << 40, 512], true),
        (&[i64::MAX, i64::MAX], true),
        (&[-1, -1], false),
        (&[1], false),
    ] {
        assert_eq!(
            FixedShape::from_dims(shape).is_too_large(),
            rejected,
            "{shape:?}"
        );
    }
}

#[test]
fn a_manifest_may_only_name_files_in_its_folder() {
    let named = |name: &str| {
        let name = serde_json::to_string(name).unwrap();
        let text = format!(
            "format = 1\nkind = \"nli\"\nmax_tokens = 16\nvocab_size = 9\nclasses = []\n\
             files = {{ {name} = \"00\" }}\ngraphs = {{}}\nvectors = []\n\
             [contract]\noutput = \"logits\"\npad_id = 1\nmasked = 0.0\n"
        );
        manifest::Manifest::parse(&text).unwrap_err()
    };
    assert!(named("config.json").contains("it has no `[[vectors]]`"));
    for name in [
        "", ".", "..", "../a", "/a", "a/b", "a/", "a/.", "./a", "a\0",
    ] {
        let error = named(name);
        assert!(error.contains("not the name of a file"), "{name}: {error}");
    }
}
