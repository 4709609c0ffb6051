//! Tests that the README and the pages in docs/ name commands, settings and files that exist.

use std::collections::BTreeSet;
use std::path::PathBuf;

use clap::CommandFactory;
use topicmill::cli::Cli;

use crate::support::engine::{files_below, repository};

/// Returns the files with this extension below a folder of the repository.
fn files(folder: &str, extension: &str) -> Vec<PathBuf> {
    let mut files = files_below(&repository(folder));
    files.retain(|path| path.extension().is_some_and(|it| it == extension));
    files
}

/// Returns the README and the pages in docs/, each with its path.
fn pages() -> Vec<(PathBuf, String)> {
    let mut paths = files("docs", "md");
    paths.push(repository("README.md"));
    let text = |path: PathBuf| (path.clone(), std::fs::read_to_string(path).unwrap());
    paths.into_iter().map(text).collect()
}

#[test]
fn every_module_has_a_description() {
    for path in ["src", "crates"].map(|folder| files(folder, "rs")).concat() {
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.starts_with("//! "), "{}", path.display());
    }
}

#[test]
fn the_docs_name_every_command_and_settings_section_and_no_other_command() {
    let pages = pages();
    let cli = Cli::command();
    let commands: BTreeSet<&str> = cli.get_subcommands().map(clap::Command::get_name).collect();
    for (page, text) in &pages {
        for rest in text.split("`topicmill ").skip(1) {
            let word = rest.split(|c: char| !c.is_ascii_lowercase()).next();
            let word = word.filter(|word| !["", "help"].contains(word));
            let exists = word.is_none_or(|word| commands.contains(word));
            assert!(exists, "{}: `topicmill {word:?}`", page.display());
        }
    }
    for command in commands {
        let line = format!("topicmill {command}");
        assert!(
            pages.iter().any(|(_, text)| text.contains(&line)),
            "no page names {line}"
        );
    }
    let defaults = std::fs::read_to_string(repository("config/topicmill.toml")).unwrap();
    for section in defaults.lines().filter(|line| line.starts_with('[')) {
        assert!(
            pages.iter().any(|(_, text)| text.contains(section)),
            "no page names {section}"
        );
    }
}

/// Returns the anchor of a heading, as GitHub makes it.
fn anchor(heading: &str) -> String {
    let kept = heading.trim_start_matches('#').trim().to_lowercase();
    let kept = kept
        .chars()
        .filter(|c| c.is_alphanumeric() || " -_".contains(*c));
    kept.map(|c| if c == ' ' { '-' } else { c }).collect()
}

#[test]
fn no_link_is_broken_and_the_readme_links_every_page() {
    let mut linked = BTreeSet::new();
    for (page, text) in pages() {
        for target in text.split("](").skip(1) {
            let target = target.split(')').next().unwrap();
            if target.starts_with("https://") || target.starts_with("http://") {
                continue;
            }
            let (path, section) = target.split_once('#').unwrap_or((target, ""));
            let path = match path {
                "" => page.clone(),
                path => page.with_file_name("").join(path),
            };
            let path = path
                .canonicalize()
                .unwrap_or_else(|_| panic!("{}: {target}", page.display()));
            if path.extension().is_some_and(|extension| extension == "md") {
                let text = std::fs::read_to_string(&path).unwrap();
                let mut headings = text.lines().filter(|line| line.starts_with('#'));
                let found = section.is_empty() || headings.any(|line| anchor(line) == section);
                assert!(found, "{}: {target}", page.display());
            }
            if page.ends_with("README.md") {
                linked.insert(path);
            }
        }
    }
    for page in files("docs", "md") {
        assert!(
            linked.contains(&page.canonicalize().unwrap()),
            "{}",
            page.display()
        );
    }
}
