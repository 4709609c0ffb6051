//! Tests `classify` while it runs: what a watcher labels, and what stops it.

use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};

use topicmill_core::clock::SystemClock;

use crate::support::builders::lines;
use crate::support::program::{Program, finished, signal};
use crate::support::wait::until_blocking;

/// Starts `classify` and waits until it has written some labels.
fn start_classify(program: &Program) -> Child {
    let mut child = program
        .command("classify --threads 1")
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let stderr = BufReader::new(child.stderr.take().unwrap());
    let mut lines = stderr.lines();
    let seen = lines
        .by_ref()
        .map_while(Result::ok)
        .any(|line| line.contains("classify: posts"));
    assert!(seen, "no progress was logged");
    // Keep reading, because a closed pipe would end the program.
    std::thread::spawn(move || lines.for_each(drop));
    child
}

/// Waits until a watcher has labelled this many posts.
fn wait_for_labels(watcher: &mut Child, program: &Program, posts: u64) {
    // The labels appear well before the watcher's next poll, which is once a minute.
    let clock = SystemClock::shared();
    until_blocking(&format!("{posts} posts are labelled"), || {
        assert!(watcher.try_wait().unwrap().is_none(), "the watcher ended");
        assert!(clock.elapsed().as_secs() < 50, "only by the next poll");
        program.count("classifications") >= posts
    });
}

#[test]
fn a_watcher_labels_imported_posts_and_stops_on_a_signal_on_both_databases() {
    for program in Program::on_each_database() {
        program.import(&lines(5, 5));
        let mut command = program.command("classify --watch");
        let mut watcher = command.stderr(Stdio::null()).spawn().unwrap();
        wait_for_labels(&mut watcher, &program, 5);
        program.import(&lines(9, 9));
        wait_for_labels(&mut watcher, &program, 9);
        signal(&watcher, "-TERM");
        assert_eq!(watcher.wait().unwrap().code(), Some(143));
    }
}

#[test]
fn a_watcher_stops_when_its_labels_are_out_of_date() {
    let program = Program::new();
    let labels = [("cats", "cats"), ("dogs", "dogs")];
    let file = program.pipeline("mine", "", &labels);
    program.import(&lines(5, 5));
    program.pipeline("other", "", &labels[..1]);
    program.ok("classify --pipeline other.toml");
    for (number, change) in [(5, "edit"), (7, "use")] {
        let mut command = program.command(&format!(
            "classify --watch --make-current --pipeline {file}"
        ));
        let mut watcher = command.stderr(Stdio::null()).spawn().unwrap();
        let mut labelled = 5 + number;
        wait_for_labels(&mut watcher, &program, labelled);
        let mine =
            "current_target t JOIN label_sets s ON s.id = t.label_set_id WHERE s.name = 'mine'";
        until_blocking("its labels are current", || program.count(mine) == 1);
        match change {
            "edit" => {
                // An editor has written only the first part of the file.
                program.write(&file, "labels = [\"cats\",");
                program.import(&lines(6, 6));
                labelled += 1;
                wait_for_labels(&mut watcher, &program, labelled);
                program.pipeline("mine", "threshold = 0.1", &labels);
            }
            _ => drop(program.ok("labels use other")),
        }
        // The watcher looks at once when a post arrives, and does not label it.
        let posts = usize::try_from(number).unwrap() + 2;
        program.import(&lines(posts, posts));
        assert_eq!(watcher.wait().unwrap().code(), Some(75), "{change}");
        assert_eq!(program.count("classifications"), labelled);
        program.pipeline("mine", "", &labels);
    }
}

#[test]
fn a_watcher_stops_when_its_database_file_is_replaced() {
    let program = Program::new();
    program.import(&lines(5, 5));
    let path = program.path("topicmill.db").display().to_string();
    let mut command = program.command("classify --watch");
    let mut watcher = command.stderr(Stdio::piped()).spawn().unwrap();
    wait_for_labels(&mut watcher, &program, 5);
    // A complete file is renamed into place: the watcher may open it at any moment.
    program.ok("--database sqlite:new.db db create");
    for end in ["-wal", "-shm"] {
        drop(std::fs::remove_file(format!("{path}{end}")));
    }
    std::fs::rename(program.path("new.db"), path).unwrap();
    let ended = finished(watcher.wait_with_output().unwrap());
    assert_ne!(ended.code, 0);
    ended.expect_stderr("replaced since this command began");
}

#[test]
fn an_interrupted_run_finishes_its_batch_and_the_next_run_continues() {
    for (name, code) in [("-INT", 130), ("-TERM", 143)] {
        let program = Program::new();
        program.import(&lines(3_000, 3_000));
        let mut child = start_classify(&program);
        signal(&child, name);
        assert_eq!(child.wait().unwrap().code(), Some(code));

        let labelled = program.count("classifications");
        assert!(labelled > 0 && labelled < 3_000, "{labelled}");
        assert_eq!(program.count("leases"), 0, "the posts were released");
        assert_eq!(program.count("backlog WHERE attempts > 0"), 0);
        program.ok("classify --limit 50");
        assert_eq!(program.count("classifications"), labelled + 50);
    }
}
