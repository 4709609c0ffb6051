//! Tests the numbers in docs/benchmarks.md about machines that disappear.

use std::process::Command;

use crate::support::engine::repository;

#[test]
fn the_defaults_waste_less_than_five_percent_when_machines_disappear() {
    let ran = Command::new("python3")
        .arg(repository("benches/spot.py"))
        .arg("--check")
        .output()
        .expect("python3 is installed, because the tests install ONNX Runtime with it");
    let message = String::from_utf8(ran.stdout).unwrap();
    assert!(
        ran.status.success(),
        "{message}{}",
        String::from_utf8_lossy(&ran.stderr)
    );
    // The first committed table has these defaults.
    let recorded = std::fs::read_to_string(repository("benches/results/scale.md")).unwrap();
    let rows: Vec<&str> = message
        .lines()
        .filter(|line| line.ends_with("** |"))
        .collect();
    assert_eq!(rows.len(), 2, "{message}");
    for row in rows {
        assert!(
            recorded.contains(row),
            "benches/results/scale.md lacks a row for these defaults: run `python3 benches/spot.py`: {row}"
        );
    }
}
