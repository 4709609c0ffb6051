//! Tasks for Label Studio and Argilla are whole or not there, whatever ends the export, and the same command goes through
//! afterwards.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use serde_json::Value;

use crate::gold::Scene;
use crate::keeping::on_a_full_disk;
use crate::support::postgres::sqlite;
use crate::support::program::Ran;

const ARGILLA: [&str; 4] = ["export", "tasks", "--format", "argilla"];
const LABEL_STUDIO: [&str; 4] = ["export", "tasks.json", "--format", "label-studio"];
const OF_ARGILLA: [&str; 3] = [
    ".argilla/dataset.json",
    ".argilla/settings.json",
    "records.json",
];

fn path(scene: &Scene<'_>, name: &str) -> PathBuf {
    scene.program.folder.path().join(name)
}

/// What lies in the folder of the program and is of an export.
fn left(scene: &Scene<'_>) -> Vec<String> {
    let entries = fs::read_dir(scene.program.folder.path()).unwrap();
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

/// Runs where a file takes 64 KiB: room for settings, and for no 200 tasks.
fn without_room(scene: &Scene<'_>, args: &[&str]) -> Ran {
    let url = ["--database", scene.database.url.as_str()];
    on_a_full_disk(&scene.program, 64, &[&url[..], args].concat())
}

/// Kills an export as soon as there is anything of it; what there is then.
fn killed(scene: &Scene<'_>, args: &[&str], seen: impl Fn(&[String]) -> bool) -> Vec<String> {
    let url = ["--database", scene.database.url.as_str()];
    let mut command = scene.program.command(&[&url[..], args].concat());
    let mut running = command
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    while !seen(&left(scene)) && running.try_wait().unwrap().is_none() {
        std::thread::yield_now();
    }
    running.kill().unwrap();
    running.wait().unwrap();
    left(scene)
}

fn remove(scene: &Scene<'_>, names: &[String]) {
    for name in names {
        let path = path(scene, name);
        if path.is_dir() {
            fs::remove_dir_all(path).unwrap();
        } else {
            fs::remove_file(path).unwrap();
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_export_leaves_no_half_of_a_folder() {
    let database = sqlite();
    let scene = Scene::new(&database, 60).await;
    let is_whole = |name: &str| {
        let folder = path(&scene, name);
        OF_ARGILLA.iter().all(|file| folder.join(file).is_file())
            && tasks_of(&folder.join("records.json")) == 60
    };
    // At the first sign of it, and at once when it has its name.
    let anything = |names: &[String]| !names.is_empty();
    let named = |names: &[String]| names.iter().any(|name| name == "tasks");
    for n in 0..20 {
        let found = if n % 2 == 0 {
            killed(&scene, &ARGILLA, anything)
        } else {
            killed(&scene, &ARGILLA, named)
        };
        for name in &found {
            let is_draft = name.starts_with(".tasks.") && name.ends_with(".partial");
            assert!(is_draft || (name == "tasks" && is_whole(name)), "{found:?}");
        }
        if !named(&found) {
            scene.ok(&ARGILLA);
            assert!(is_whole("tasks"));
        }
        remove(&scene, &left(&scene));
    }
    // In the place of another one.
    scene.ok(&[&ARGILLA[..], &["--limit", "5"]].concat());
    let over = [&ARGILLA[..], &["--overwrite"]].concat();
    for _ in 0..10 {
        let found = killed(&scene, &over, |names| names.len() > 1);
        let records = tasks_of(&path(&scene, "tasks/records.json"));
        assert!([5, 60].contains(&records), "{records}");
        for name in found.iter().filter(|name| *name != "tasks") {
            assert!(name.ends_with(".partial"), "{found:?}");
        }
        let drafts: Vec<String> = found.into_iter().filter(|name| name != "tasks").collect();
        remove(&scene, &drafts);
    }
    scene.ok(&over);
    assert!(is_whole("tasks"));
    assert_eq!(left(&scene), ["tasks"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_leaves_no_tasks_or_those_that_were_there() {
    let database = sqlite();
    let scene = Scene::new(&database, 200).await;
    for (args, whole, tasks) in [
        (ARGILLA, &["tasks"][..], "tasks/records.json"),
        (LABEL_STUDIO, &["tasks.json", "tasks.xml"][..], "tasks.json"),
    ] {
        let full = without_room(&scene, &args);
        assert_eq!(full.code, 1, "{args:?}: {}", full.stderr);
        assert!(left(&scene).is_empty(), "{args:?}: {:?}", left(&scene));
        scene.ok(&[&args[..], &["--limit", "5"]].concat());
        assert_eq!(left(&scene), whole);
        let full = without_room(&scene, &[&args[..], &["--overwrite"]].concat());
        assert_eq!(full.code, 1, "{args:?}: {}", full.stderr);
        assert_eq!(left(&scene), whole);
        assert_eq!(tasks_of(&path(&scene, tasks)), 5);
        scene.ok(&[&args[..], &["--overwrite"]].concat());
        assert_eq!(left(&scene), whole);
        assert_eq!(tasks_of(&path(&scene, tasks)), 200);
        remove(&scene, &left(&scene));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_interface_without_its_tasks_is_gone_on_with_and_one_of_somebody_elses_is_not() {
    let database = sqlite();
    let scene = Scene::new(&database, 12).await;
    let (list, interface) = (path(&scene, "tasks.json"), path(&scene, "tasks.xml"));
    scene.ok(&LABEL_STUDIO);
    let ours = fs::read_to_string(&interface).unwrap();
    // As a kill between the two names leaves it.
    fs::remove_file(&list).unwrap();
    scene.ok(&LABEL_STUDIO);
    assert_eq!(fs::read_to_string(&interface).unwrap(), ours);
    assert_eq!(tasks_of(&list), 12);
    fs::remove_file(&list).unwrap();
    fs::write(&interface, "<View/>").unwrap();
    let refused = scene.run(&LABEL_STUDIO);
    assert_eq!(refused.code, 2, "{}", refused.stderr);
    assert!(refused.stderr.contains("tasks.xml"), "{}", refused.stderr);
    assert!(!list.exists());
    // Where the tasks cannot get their name, the interface is as it was.
    fs::create_dir(&list).unwrap();
    let over = [&LABEL_STUDIO[..], &["--overwrite"]].concat();
    let failed = scene.run(&over);
    assert_eq!(failed.code, 1, "{}", failed.stderr);
    assert_eq!(fs::read_to_string(&interface).unwrap(), "<View/>");
    fs::remove_file(&interface).unwrap();
    assert_eq!(scene.run(&over).code, 1);
    assert_eq!(left(&scene), ["tasks.json"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_folder_with_files_of_somebody_elses_is_not_replaced() {
    let database = sqlite();
    let scene = Scene::new(&database, 12).await;
    let folder = path(&scene, "tasks");
    // An empty one is in nobody's way.
    fs::create_dir(&folder).unwrap();
    scene.ok(&ARGILLA);
    assert_eq!(scene.run(&ARGILLA).code, 2);
    let over = [&ARGILLA[..], &["--overwrite"]].concat();
    for answers in ["answers.json", ".argilla/answers.json"] {
        fs::write(folder.join(answers), "what people said").unwrap();
        let refused = scene.run(&over);
        assert_eq!(refused.code, 2, "{}", refused.stderr);
        assert!(refused.stderr.contains(answers), "{}", refused.stderr);
        assert!(folder.join(answers).exists());
        fs::remove_file(folder.join(answers)).unwrap();
    }
    let records = folder.join("records.json");
    let unanswered = fs::read_to_string(&records).unwrap();
    let answer = "\"responses\": {\"label\": [{\"value\": \"food\"}]}";
    let answered = unanswered.replacen("\"responses\": {}", answer, 1);
    assert_ne!(answered, unanswered);
    fs::write(&records, &answered).unwrap();
    let refused = scene.run(&over);
    assert_eq!(refused.code, 2, "{}", refused.stderr);
    assert!(
        refused.stderr.contains("records.json"),
        "{}",
        refused.stderr
    );
    assert_eq!(fs::read_to_string(&records).unwrap(), answered);
    fs::write(&records, &unanswered).unwrap();
    scene.ok(&over);
    // Settings alone may be somebody's, or what an earlier version left when it was killed.
    fs::remove_file(folder.join("records.json")).unwrap();
    assert_eq!(scene.run(&ARGILLA).code, 2);
    assert!(folder.join(".argilla/dataset.json").exists());
    scene.ok(&over);
    assert_eq!(tasks_of(&folder.join("records.json")), 12);
    // Behind a link lies the folder that is meant.
    std::os::unix::fs::symlink("tasks", path(&scene, "linked-tasks")).unwrap();
    let linked = [
        "export",
        "linked-tasks",
        "--format",
        "argilla",
        "--overwrite",
    ];
    scene.ok(&linked);
    assert!(
        path(&scene, "linked-tasks")
            .symlink_metadata()
            .unwrap()
            .is_symlink()
    );
    assert_eq!(left(&scene), ["linked-tasks", "tasks"]);
}
