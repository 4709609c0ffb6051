//! Tests deployment: database roles, secrets in files, a read-only home, and the files in packaging/.

mod roles;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use crate::support::engine::{files_below, repository};
use crate::support::program::{Program, finished};

#[test]
fn a_secret_can_come_from_a_file_and_a_missing_file_is_rejected() {
    let program = Program::new();
    program.write("url", "sqlite:hidden.db\n");
    let show = |file: &str| {
        let mut command = program.command("config show --origin");
        finished(command.env("DATABASE_URL_FILE", file).output().unwrap())
    };
    let shown = show("url");
    for part in ["sqlite:hidden.db", "$DATABASE_URL_FILE"] {
        assert!(shown.stdout.contains(part), "{}", shown.stdout);
    }
    let refused = show("nowhere");
    refused.expect_code(2);
    refused.expect_stderr_all(&[
        "`database.url_file` in $DATABASE_URL_FILE",
        "`nowhere`",
        "correct the path",
    ]);
}

#[test]
fn a_service_without_a_home_directory_loses_only_its_cache() {
    let program = Program::new();
    // Not even root can create a folder in /proc.
    let run = |line: &str| {
        let mut command = program.command(line);
        command
            .env("HOME", "/proc")
            .env_remove("XDG_CACHE_HOME")
            .env_remove("XDG_DATA_HOME");
        finished(command.output().unwrap())
    };
    for line in [
        "collect --source sample --limit 2",
        "classify",
        "status --check",
        "report report.html",
        "export labelled.csv",
    ] {
        let ran = run(line);
        assert_eq!(ran.code, 0, "{line}: {}", ran.stderr);
    }
    let model = repository("models/minilm-reddit-topics");
    run(&format!("setup --force --model {}", model.display()))
        .expect_exit(1, "/proc/.local/share/topicmill");
}

/// Reads a file in packaging/.
fn packaging(path: &str) -> String {
    std::fs::read_to_string(repository("packaging").join(path)).unwrap()
}

#[test]
fn settings_in_the_debian_package_exist() {
    let file = repository("packaging/debian/config.toml");
    let program = Program::new();
    let shown = program.ok(&format!("--config {} config show", file.display()));
    let database = "sqlite:/var/lib/topicmill/topicmill.db";
    assert!(shown.stdout.contains(database), "{}", shown.stdout);
    // The settings in the commented-out lines exist, too.
    let text = packaging("debian/config.toml")
        .replace("# client_secret_file", "client_secret_file")
        .replace("# token_file", "token_file");
    std::fs::create_dir(program.path("secrets")).unwrap();
    program.write("secrets/reddit", "hush");
    program.write("secrets/serve-token", "0123456789abcdef");
    program.write("config.toml", text);
    program.ok("--config config.toml config show");
}

#[test]
fn variables_in_the_compose_files_exist() {
    let program = Program::new();
    program.write("secret", "sqlite:x.db");
    let mut names = BTreeSet::new();
    for text in ["docker/compose.yaml", "docker/compose.cuda.yaml"].map(packaging) {
        let lines = text.lines().map(|line| line.trim_start_matches(['#', ' ']));
        let set = lines.filter(|line| line.starts_with("TOPICMILL__"));
        names.extend(set.map(|line| line.split(':').next().unwrap().to_owned()));
    }
    assert!(names.len() > 5, "{names:?}");
    for name in &names {
        let is_file = name.ends_with("_FILE");
        let value = if is_file { "secret" } else { "text" };
        let mut command = program.command("config show");
        let shown = finished(command.env(name, value).output().unwrap());
        // Some settings do not accept the value, but none is unknown.
        let why = &shown.stderr;
        assert!(shown.code == 0 || why.contains("setting `"), "{why}");
        assert!(!why.contains("unknown setting"), "{why}");
    }
}

/// Returns the files that a source file embeds with `include_str!` or `include_bytes!`.
fn included(source: &Path, top: &Path) -> Vec<PathBuf> {
    let text = std::fs::read_to_string(source).unwrap();
    let calls = text.split("include_").skip(1);
    let named = calls.filter_map(|rest| {
        let rest = rest
            .strip_prefix("str!(")
            .or(rest.strip_prefix("bytes!("))?;
        rest.trim_start().strip_prefix('"')?.split('"').next()
    });
    let files = named.filter_map(|named| source.parent()?.join(named).canonicalize().ok());
    files
        .map(|file| file.strip_prefix(top).unwrap().to_owned())
        .collect()
}

/// Returns true if the container build gets a file or folder of the repository.
fn is_in_container(path: &Path) -> bool {
    let rules = packaging("docker/Dockerfile.dockerignore");
    let mut kept = rules.lines().filter_map(|it| it.strip_prefix('!'));
    kept.any(|rule| path.starts_with(rule))
}

#[test]
fn the_container_build_includes_every_embedded_file() {
    let top = repository("").canonicalize().unwrap();
    let files = ["src", "crates"].map(|folder| files_below(&top.join(folder)));
    let sources = files.iter().flatten();
    let sources = sources.filter(|path| path.extension().is_some_and(|it| it == "rs"));
    let embedded = sources.flat_map(|source| included(source, &top));
    // The container does not compile tests, so it needs no files that only tests embed.
    let embedded: Vec<PathBuf> = embedded.filter(|it| !it.starts_with("tests")).collect();
    assert!(embedded.len() > 10, "{embedded:?}");
    for file in embedded {
        assert!(is_in_container(&file), "{}", file.display());
    }
}

#[test]
fn the_container_build_includes_what_cargo_needs_to_load_the_workspace() {
    let manifest = manifest();
    let members = manifest["workspace"]["members"].as_array().unwrap();
    let targets = ["test", "bench"].map(|kind| manifest.get(kind).and_then(toml::Value::as_array));
    let targets = targets
        .into_iter()
        .flatten()
        .flatten()
        .map(|it| &it["path"]);
    let named = members.iter().chain(targets).map(|it| it.as_str().unwrap());
    for path in named.filter(|path| *path != ".").chain([
        "Cargo.toml",
        "Cargo.lock",
        "build.rs",
        "requirements/onnxruntime.txt",
        "models/minilm-reddit-topics",
    ]) {
        assert!(is_in_container(Path::new(path)), "{path}");
    }
}

fn manifest() -> toml::Table {
    toml::from_str(&std::fs::read_to_string(repository("Cargo.toml")).unwrap()).unwrap()
}

#[test]
fn files_in_the_debian_package_exist() {
    let manifest = manifest();
    let deb = &manifest["package"]["metadata"]["deb"];
    for asset in deb["assets"].as_array().unwrap() {
        let source = asset[0].as_str().unwrap();
        // Files that the build creates: the program, and its generated files.
        if !source.starts_with("target/") {
            assert!(
                repository(source.trim_end_matches("/*").trim_end_matches("/*.md")).exists(),
                "{source}"
            );
        }
    }
    let units = deb["systemd-units"].as_array().unwrap();
    assert!(units.len() >= 3);
    for unit in units {
        let name = format!(
            "packaging/debian/{}.service",
            unit["unit-name"].as_str().unwrap()
        );
        assert!(repository(&name).exists(), "{name}");
    }
}
