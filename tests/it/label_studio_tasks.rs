//! Tests that tasks for Label Studio are written atomically under a kill or a full disk, and that the same command
//! succeeds afterwards.

use std::fs;

use crate::maintenance::run_on_small_disk;
use crate::support::postgres::sqlite;
use crate::support::program::Program;

const EXPORT: &str = "export tasks.json --format label-studio";

/// Returns the files of an export in the program's folder.
fn exported_files(program: &Program) -> Vec<String> {
    let mut files = program.files();
    files.retain(|name| name.contains("tasks"));
    files
}

/// Returns the number of exported tasks.
fn tasks(program: &Program) -> usize {
    program.read_json("tasks.json").as_array().unwrap().len()
}

/// Runs with a file size limit of 64 KiB: enough for settings, not for 200 tasks.
#[track_caller]
fn fail_on_full_disk(program: &Program, line: &str) {
    run_on_small_disk(program, 64, line).expect_code(1);
}

#[test]
fn a_full_disk_leaves_no_tasks_file_or_the_previous_one() {
    let program = Program::on(sqlite()).labelled_in_turn(200);
    let both = ["tasks.json", "tasks.xml"];
    fail_on_full_disk(&program, EXPORT);
    assert_eq!(exported_files(&program), [""; 0]);
    program.ok(&format!("{EXPORT} --limit 5"));
    assert_eq!(exported_files(&program), both);
    let again = format!("{EXPORT} --overwrite");
    fail_on_full_disk(&program, &again);
    assert_eq!(exported_files(&program), both);
    assert_eq!(tasks(&program), 5);
    program.ok(&again);
    assert_eq!(exported_files(&program), both);
    assert_eq!(tasks(&program), 200);
}

#[test]
fn an_unfinished_export_is_resumed_and_a_different_interface_file_is_kept() {
    let program = Program::on(sqlite()).labelled_in_turn(12);
    let list = program.path("tasks.json");
    program.ok(EXPORT);
    let ours = program.read("tasks.xml");
    // The state after a kill between the two renames.
    fs::remove_file(&list).unwrap();
    program.ok(EXPORT);
    assert_eq!(program.read("tasks.xml"), ours);
    assert_eq!(tasks(&program), 12);
    fs::remove_file(&list).unwrap();
    program.write("tasks.xml", "<View/>");
    for line in [EXPORT, &format!("{EXPORT} --overwrite")] {
        program.run(line).expect_exit(2, "tasks.xml");
    }
    assert_eq!(program.read("tasks.xml"), "<View/>");
    assert!(!list.exists());
}
