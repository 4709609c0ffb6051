//! Tests that tasks for Label Studio are written atomically under a kill or a full disk, and that the same command
//! succeeds afterwards.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::maintenance::run_on_small_disk;
use crate::support::postgres::sqlite;
use crate::support::program::{Program, RunOutput};

const LABEL_STUDIO: [&str; 4] = ["export", "tasks.json", "--format", "label-studio"];

/// Returns the files of an export in the program's folder.
fn left(program: &Program) -> Vec<String> {
    let entries = fs::read_dir(program.folder.path()).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> = names.filter(|name| name.contains("tasks")).collect();
    names.sort();
    names
}

fn tasks_of(path: &Path) -> usize {
    let text = fs::read_to_string(path).unwrap();
    let tasks: Value = serde_json::from_str(&text).unwrap();
    tasks.as_array().unwrap().len()
}

/// Runs with a file size limit of 64 KiB: enough for settings, not for 200 tasks.
fn run_on_full_disk(program: &Program, args: &[&str]) -> RunOutput {
    run_on_small_disk(program, 64, args)
}

#[test]
fn a_full_disk_leaves_no_tasks_file_or_the_previous_one() {
    let program = Program::on(sqlite()).labelled_in_turn(200);
    let (list, whole) = (program.path("tasks.json"), ["tasks.json", "tasks.xml"]);
    let over = [&LABEL_STUDIO[..], &["--overwrite"]].concat();
    let full = run_on_full_disk(&program, &LABEL_STUDIO);
    assert_eq!(full.code, 1, "{}", full.stderr);
    assert!(left(&program).is_empty(), "{:?}", left(&program));
    program.ok(&[&LABEL_STUDIO[..], &["--limit", "5"]].concat());
    assert_eq!(left(&program), whole);
    let full = run_on_full_disk(&program, &over);
    assert_eq!(full.code, 1, "{}", full.stderr);
    assert_eq!(left(&program), whole);
    assert_eq!(tasks_of(&list), 5);
    program.ok(&over);
    assert_eq!(left(&program), whole);
    assert_eq!(tasks_of(&list), 200);
}

#[test]
fn an_unfinished_export_is_resumed_and_a_different_interface_file_is_kept() {
    let program = Program::on(sqlite()).labelled_in_turn(12);
    let (list, interface) = (program.path("tasks.json"), program.path("tasks.xml"));
    program.ok(&LABEL_STUDIO);
    let ours = fs::read_to_string(&interface).unwrap();
    // The state after a kill between the two renames.
    fs::remove_file(&list).unwrap();
    program.ok(&LABEL_STUDIO);
    assert_eq!(fs::read_to_string(&interface).unwrap(), ours);
    assert_eq!(tasks_of(&list), 12);
    fs::remove_file(&list).unwrap();
    fs::write(&interface, "<View/>").unwrap();
    let over = [&LABEL_STUDIO[..], &["--overwrite"]].concat();
    for line in [&LABEL_STUDIO[..], &over] {
        program.run(line).expect_exit(2, "tasks.xml");
    }
    assert_eq!(fs::read_to_string(&interface).unwrap(), "<View/>");
    assert!(!list.exists());
}
