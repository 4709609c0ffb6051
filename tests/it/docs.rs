//! Tests that statements about the code in docs/, help and messages are true.

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
