//! Every parser that reads what somebody else wrote, against inputs that a fuzzer makes of a small corpus.
//!
//! A target is a function that takes bytes and panics where a promise is broken: not only that nothing panics, but that
//! what was read is sound, within bounds, and the same when it is written and read again. Plain `cargo test` replays
//! `__fuzz__/TARGET/corpus` and `__fuzz__/TARGET/crashes`, in seconds. `scripts/fuzz TARGET SECONDS` lets libFuzzer search,
//! guided by the code that an input reaches, and `make fuzz` does so with all targets.

mod models;
mod pictures;
mod tables;
mod wire;
mod words;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Long enough for every corpus; bolero stops after a second unless told otherwise.
const LONGEST_REPLAY: Duration = Duration::from_mins(5);

/// Declares a test for each target. Its name is also the name of its folder.
macro_rules! targets {
    ($($name:ident => $check:path),+ $(,)?) => {
        const TARGETS: &[&str] = &[$(stringify!($name)),+];

        $(
            #[test]
            fn $name() {
                bolero::check!(name = stringify!($name))
                    .with_test_time(LONGEST_REPLAY)
                    .with_iterations(64)
                    .for_each(|bytes: &[u8]| $check(bytes));
            }
        )+
    };
}

targets! {
    listing => wire::listing,
    dump_line => wire::dump_line,
    headers => wire::headers,
    entities => wire::entities,
    csv_with_map => tables::csv_with_map,
    csv => tables::csv,
    ndjson => tables::ndjson,
    json_array => tables::json_array,
    parquet => tables::parquet,
    pipeline_file => words::pipeline_file,
    settings => words::settings,
    label_set => words::label_set,
    manifest => models::manifest,
    tokenizer => models::tokenizer,
    drawn_text => pictures::drawn_text,
}

fn folder(target: &str) -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("__fuzz__");
    here.join(target)
}

/// The sizes of the inputs in a folder.
fn sizes(folder: &Path) -> Vec<u64> {
    let entries = std::fs::read_dir(folder).into_iter().flatten();
    entries
        .map(|entry| entry.unwrap().metadata().unwrap().len())
        .collect()
}

#[test]
fn every_corpus_belongs_to_a_target_and_is_small() {
    let entries = std::fs::read_dir(folder("")).unwrap();
    let found: BTreeSet<String> = entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    let expected: BTreeSet<String> = TARGETS.iter().map(ToString::to_string).collect();
    assert_eq!(found, expected);
    for target in TARGETS {
        let corpus = sizes(&folder(target).join("corpus"));
        assert!((1..=12).contains(&corpus.len()), "{target}");
        let crashes = sizes(&folder(target).join("crashes"));
        let bytes: u64 = corpus.iter().chain(&crashes).sum();
        assert!(bytes < 200 << 10, "{target}: {bytes} bytes");
    }
}
