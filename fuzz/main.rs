//! Fuzz targets for every parser of untrusted input.
//!
//! A target takes bytes and panics if a guarantee is broken: parsing must not crash, and parsed data must be valid,
//! within bounds, and unchanged after a round trip. Plain `cargo test` replays `__fuzz__/TARGET/corpus` and
//! `__fuzz__/TARGET/crashes`, in seconds. `scripts/fuzz TARGET SECONDS` runs libFuzzer, guided by coverage, and `make
//! fuzz` does so for all targets.

#![expect(unexpected_cfgs, reason = "`scripts/fuzz` sets `fuzzing`")]
#![expect(
    clippy::print_stdout,
    reason = "the harness shows the output of a failed test"
)]

mod models;
mod tables;
mod wire;
mod words;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Declares a test per target, named after its folder.
macro_rules! targets {
    ($($name:ident => $check:path),+ $(,)?) => {
        const TARGETS: &[&str] = &[$(stringify!($name)),+];

        $(
            #[test]
            fn $name() {
                #[cfg(fuzzing)]
                bolero::check!(name = stringify!($name)).for_each(|bytes: &[u8]| $check(bytes));
                #[cfg(not(fuzzing))]
                replay(stringify!($name), $check);
            }
        )+
    };
}

targets! {
    listing => wire::listing,
    dump_line => wire::dump_line,
    entities => wire::entities,
    csv_with_map => tables::csv_with_map,
    csv => tables::csv,
    ndjson => tables::json,
    json_array => tables::json,
    parquet => tables::parquet,
    pipeline_file => words::pipeline_file,
    settings => words::settings,
    label_set => words::label_set,
    manifest => models::manifest,
    tokenizer => models::tokenizer,
}

fn folder(target: &str) -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("__fuzz__");
    here.join(target)
}

/// Returns the inputs in a folder, each with its path.
fn inputs(folder: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let entries = std::fs::read_dir(folder).into_iter().flatten();
    let paths = entries.map(|entry| entry.unwrap().path());
    paths
        .map(|path| (path.clone(), std::fs::read(path).unwrap()))
        .collect()
}

/// Checks each input of a target and the first half of the input. Prints the path of the input, which the harness shows
/// if the check fails.
#[cfg(not(fuzzing))]
fn replay(target: &str, check: fn(&[u8])) {
    for part in ["corpus", "crashes"] {
        for (path, bytes) in inputs(&folder(target).join(part)) {
            println!("{}", path.display());
            check(&bytes);
            check(&bytes[..bytes.len() / 2]);
        }
    }
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
        let mut all = inputs(&folder(target).join("corpus"));
        assert!((1..=12).contains(&all.len()), "{target}");
        all.extend(inputs(&folder(target).join("crashes")));
        let bytes: usize = all.iter().map(|(_, input)| input.len()).sum();
        assert!(bytes < 200 << 10, "{target}: {bytes} bytes");
    }
}
