//! Tests that statements about the code in docs/, help and messages are true.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use crate::support::engine::repository;
use crate::support::program::Program;

fn sources(folder: &Path, into: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, into);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            into.push(path);
        }
    }
}

/// The folders that contain code.
const CODE: [&str; 2] = ["src", "crates"];

#[test]
fn every_module_has_a_description() {
    let mut files = Vec::new();
    for folder in CODE {
        sources(&repository(folder), &mut files);
    }
    for path in files {
        assert!(
            std::fs::read_to_string(&path).unwrap().starts_with("//! "),
            "{}",
            path.display()
        );
    }
}

/// Returns the commands of `topicmill --help`.
fn commands() -> Vec<String> {
    let help = Program::new().ok(&["--help"]).stdout;
    let listed = help
        .split("Commands:")
        .nth(1)
        .unwrap()
        .split("\n\n")
        .next()
        .unwrap()
        .to_owned();
    let names = listed
        .lines()
        .filter_map(|line| line.strip_prefix("  "))
        // Skip the continuation lines of descriptions.
        .filter(|line| !line.starts_with(' '))
        .filter_map(|line| line.split_whitespace().next());
    names
        .filter(|name| *name != "help")
        .map(str::to_owned)
        .collect()
}

/// Returns the README and the pages in docs/, each with its name.
fn pages() -> Vec<(String, String)> {
    let docs = std::fs::read_dir(repository("docs")).unwrap();
    let mut paths: Vec<PathBuf> = docs
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "md"))
        .collect();
    paths.push(repository("README.md"));
    paths
        .iter()
        .map(|path| {
            let name = path.strip_prefix(repository("docs"));
            let name = name.unwrap_or(Path::new("README.md")).display();
            (name.to_string(), std::fs::read_to_string(path).unwrap())
        })
        .collect()
}

#[test]
fn the_docs_name_every_command_and_no_other() {
    let pages = pages();
    let commands = commands();
    assert!(commands.len() >= 10, "{commands:?}");
    for command in &commands {
        let named = format!("topicmill {command}");
        assert!(
            pages.iter().any(|(_, text)| text.contains(&named)),
            "neither README.md nor a page in docs/ names `{named}`"
        );
    }
    for (page, text) in &pages {
        for rest in text.split("`topicmill ").skip(1) {
            let word: String = rest.chars().take_while(char::is_ascii_lowercase).collect();
            assert!(
                word.is_empty() || commands.contains(&word),
                "{page} names `topicmill {word}`, which does not exist"
            );
        }
    }
}

#[test]
fn the_readme_links_every_page_and_no_link_is_broken() {
    let pages = pages();
    let (_, readme) = pages.last().unwrap();
    for (page, text) in &pages {
        assert!(
            page == "README.md" || readme.contains(&format!("(docs/{page})")),
            "README.md does not link to docs/{page}"
        );
        let folder = if page == "README.md" { "" } else { "docs" };
        for rest in text.split("](").skip(1) {
            let target = rest.split([')', '#']).next().unwrap();
            if !target.is_empty() && !target.starts_with("https://") {
                let path = repository(folder).join(target);
                assert!(path.exists(), "{page} links to {target}");
            }
        }
    }
    assert!(readme.lines().count() <= 150, "README.md is too long");
}

#[test]
fn advice_about_a_run_names_existing_flags_and_commands() {
    let text = std::fs::read_to_string(repository("src/advice.rs")).unwrap();
    let help = Program::new().ok(&["classify", "--help"]).stdout;
    let words = |start: &'static str| {
        text.split(start).skip(1).map(|rest| {
            let end = |c: char| !c.is_ascii_lowercase() && c != '-';
            rest.split(end).next().unwrap()
        })
    };
    let flags: BTreeSet<&str> = words("`--").collect();
    assert!(flags.len() >= 5, "{flags:?}");
    for flag in flags {
        let known = help
            .split_whitespace()
            .any(|word| word == format!("--{flag}"));
        assert!(known, "`classify` has no --{flag}");
    }
    let commands = commands();
    let mut named = words("`topicmill ")
        .chain(words("`classify"))
        .filter(|word| !word.is_empty());
    assert!(named.all(|command| commands.iter().any(|known| known == command)));
}

#[test]
fn the_docs_name_every_settings_section() {
    let pages = pages();
    let defaults = std::fs::read_to_string(repository("config/topicmill.toml")).unwrap();
    for section in defaults.lines().filter(|line| line.starts_with('[')) {
        assert!(
            pages.iter().any(|(_, text)| text.contains(section)),
            "neither README.md nor a page in docs/ names {section}"
        );
    }
}

/// Returns the names in backticks.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

/// Returns the code and its tests as one string.
fn all_code() -> String {
    let mut files = Vec::new();
    for folder in CODE {
        sources(&repository(folder), &mut files);
    }
    sources(&repository("tests"), &mut files);
    files
        .iter()
        .map(|path| std::fs::read_to_string(path).unwrap())
        .collect()
}

#[test]
fn every_test_named_in_the_security_page_exists() {
    let text = std::fs::read_to_string(repository("docs/security.md")).unwrap();
    let all = all_code();
    let promises = text.split("## ").find(|part| part.starts_with("Promises"));
    let rows = promises.expect("the page has the section").lines();
    let rows: Vec<&str> = rows.filter(|line| line.starts_with("| ")).skip(1).collect();
    assert!(rows.len() >= 20, "{}", rows.len());
    for row in rows {
        let (_, tests) = row.trim_end_matches(" |").rsplit_once(" | ").unwrap();
        assert!(quoted(tests).count() > 0, "no test: {row}");
        for test in quoted(tests) {
            assert!(
                all.contains(&format!("fn {test}()")),
                "docs/security.md: there is no test `{test}`"
            );
        }
    }
}

#[test]
fn every_file_named_in_the_requirements_table_exists() {
    let text = std::fs::read_to_string(repository("docs/collect.md")).unwrap();
    let all = all_code();
    let mut points = 0;
    let (_, table) = text.split_once("## Guarantees").unwrap();
    for row in table.lines().filter(|line| line.starts_with("| ")) {
        let cells: Vec<&str> = row.split(" | ").map(str::trim).collect();
        let [number, _, places, tests] = cells[..] else {
            panic!("not four cells: {row}");
        };
        if number.trim_start_matches("| ").parse::<u32>().is_err() {
            continue;
        }
        points += 1;
        let mut file = String::new();
        for name in quoted(places) {
            if std::path::Path::new(name).extension().is_some() {
                file = std::fs::read_to_string(repository(name))
                    .unwrap_or_else(|error| panic!("docs/collect.md names {name}: {error}"));
            } else {
                assert!(
                    file.contains(name),
                    "docs/collect.md: `{name}` is not in its file"
                );
            }
        }
        assert!(!file.is_empty(), "no file is named: {row}");
        assert!(quoted(tests).count() > 1, "no tests: {row}");
        for test in quoted(tests) {
            assert!(
                all.contains(&format!("fn {test}()")),
                "docs/collect.md: there is no test `{test}`"
            );
        }
    }
    assert_eq!(points, 13);
}
