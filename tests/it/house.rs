//! The house rules that a compiler does not check: who may use whom, and that what is written down in two
//! places says the same in both.

use std::collections::{BTreeMap, BTreeSet};
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

/// The folders of code: the program's and the scoring crate's.
const CODE: [&str; 2] = ["src", "crates/score/src"];

/// Path below the repository and text without comments and unit tests of every source file.
fn code() -> BTreeMap<String, String> {
    let mut files = Vec::new();
    for folder in CODE {
        sources(&repository(folder), &mut files);
    }
    let text_of = |path: PathBuf| {
        let text = std::fs::read_to_string(&path).unwrap();
        // Unit tests stand at the end of a file.
        let code = text.split("\n#[cfg(test)]\nmod tests").next().unwrap();
        let lines = code
            .lines()
            .filter(|line| !line.trim_start().starts_with("//"));
        let path = path.strip_prefix(repository("")).unwrap();
        let code = lines.collect::<Vec<_>>().join("\n");
        (path.display().to_string(), code)
    };
    files.into_iter().map(text_of).collect()
}

/// The modules that lead to a file: `src/store/sql/mod.rs` is `[store, sql]`.
fn module_of(path: &str) -> Vec<String> {
    let below = CODE.iter().find_map(|folder| path.strip_prefix(folder));
    let below = below
        .unwrap()
        .trim_start_matches('/')
        .trim_end_matches(".rs");
    let names = below
        .split('/')
        .filter(|name| !["mod", "lib", "main"].contains(name));
    names.map(str::to_owned).collect()
}

/// Paths that a file names from `crate::`, `super::` and `self::` on, each as modules and items from the crate's root,
/// with what stands in braces told one by one.
fn paths_of(module: &[String], code: &str) -> Vec<Vec<String>> {
    let mut paths = Vec::new();
    for (start, up) in [("crate::", None), ("super::", Some(1)), ("self::", Some(0))] {
        for (at, _) in code.match_indices(start) {
            let before = code[..at].chars().next_back();
            // A longer word, or the middle of `super::super::`.
            if before.is_some_and(|c| c.is_alphanumeric() || c == '_' || c == ':' || c == '$') {
                continue;
            }
            let (mut up, mut rest) = (up, &code[at + start.len()..]);
            while let (Some(levels), Some(further)) = (up, rest.strip_prefix("super::")) {
                (up, rest) = (Some(levels + 1), further);
            }
            let root = up.map_or(&[][..], |up| &module[..module.len().saturating_sub(up)]);
            expand(root.to_vec(), rest, &mut paths);
        }
    }
    paths
}

/// Follows a path from what comes after its start, into braces too.
fn expand(mut path: Vec<String>, rest: &str, into: &mut Vec<Vec<String>>) {
    let rest = rest.trim_start();
    if let Some(list) = rest.strip_prefix('{') {
        let (mut depth, mut from) = (0, 0);
        for (at, c) in list.char_indices() {
            match c {
                '{' => depth += 1,
                '}' if depth > 0 => depth -= 1,
                ',' | '}' if depth == 0 => {
                    expand(path.clone(), &list[from..at], into);
                    from = at + 1;
                    if c == '}' {
                        return;
                    }
                }
                _ => {}
            }
        }
        return;
    }
    let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_');
    let (word, rest) = rest.split_at(end.unwrap_or(rest.len()));
    if word.is_empty() || word == "self" {
        return into.push(path);
    }
    path.push(word.to_owned());
    match rest.strip_prefix("::") {
        Some(rest) => expand(path, rest, into),
        None => into.push(path),
    }
}

/// The file that a path leads to: that of the longest run of modules at its start.
fn file_of(files: &BTreeMap<Vec<String>, String>, path: &[String]) -> Option<String> {
    let longest = (0..=path.len()).rev();
    let found = longest
        .map(|len| &path[..len])
        .find_map(|start| files.get(start));
    found.filter(|_| !path.is_empty()).cloned()
}

/// Of each file of a folder the files that it imports from.
fn imports(folder: &str) -> BTreeMap<String, BTreeSet<String>> {
    let code = code();
    let of_folder = || code.iter().filter(|(path, _)| path.starts_with(folder));
    let files: BTreeMap<Vec<String>, String> = of_folder()
        .map(|(path, _)| (module_of(path), path.clone()))
        .collect();
    let named = of_folder().map(|(path, text)| {
        let paths = paths_of(&module_of(path), text);
        let named = paths.iter().filter_map(|named| file_of(&files, named));
        (path.clone(), named.filter(|file| file != path).collect())
    });
    named.collect()
}

/// The arrows that lib.rs lists.
fn allowed() -> BTreeMap<String, BTreeSet<String>> {
    let lib = std::fs::read_to_string(repository("src/lib.rs")).unwrap();
    lib.lines()
        .filter_map(|line| line.strip_prefix("//! ")?.split_once(" -> "))
        .map(|(from, to)| {
            let to = to.split(", ").map(|name| name.trim().to_owned()).collect();
            (from.trim().to_owned(), to)
        })
        .collect()
}

#[test]
fn rooms_use_only_those_that_the_map_lists() {
    let allowed = allowed();
    assert!(allowed.len() >= 8, "the map of lib.rs was not found");
    let mut used: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (path, imported) in imports("src") {
        let module = module_of(&path);
        let Some(from) = module.first() else { continue };
        for other in imported {
            let other = module_of(&other);
            // Macros stand at the root.
            let Some(to) = other.first().filter(|to| *to != from) else {
                continue;
            };
            let ok = allowed.get(from).is_some_and(|rooms| rooms.contains(to));
            assert!(
                ok,
                "{path} uses `{to}`: lib.rs does not list {from} -> {to}"
            );
            used.entry(from.clone()).or_default().insert(to.clone());
        }
    }
    assert_eq!(used, allowed, "lib.rs lists an arrow that nobody needs");
}

#[test]
fn every_module_says_what_it_is() {
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

/// Commands of `topicmill --help`.
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
        // The rest of a sentence that goes on.
        .filter(|line| !line.starts_with(' '))
        .filter_map(|line| line.split_whitespace().next());
    names
        .filter(|name| *name != "help")
        .map(str::to_owned)
        .collect()
}

/// The README and the pages of docs/, each with its name.
fn pages() -> Vec<(String, String)> {
    let docs = std::fs::read_dir(repository("docs")).unwrap();
    let below = std::fs::read_dir(repository("docs/operating")).unwrap();
    let paths = docs.chain(below).map(|entry| entry.unwrap().path());
    let mut paths: Vec<PathBuf> = paths
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
fn the_readme_or_a_page_names_every_command_and_no_other() {
    let pages = pages();
    let commands = commands();
    assert!(commands.len() >= 10, "{commands:?}");
    for command in &commands {
        let named = format!("topicmill {command}");
        assert!(
            pages.iter().any(|(_, text)| text.contains(&named)),
            "neither README.md nor a page of docs/ names `{named}`"
        );
    }
    for (page, text) in &pages {
        for rest in text.split("`topicmill ").skip(1) {
            let word: String = rest.chars().take_while(char::is_ascii_lowercase).collect();
            assert!(
                word.is_empty() || commands.contains(&word),
                "{page} names `topicmill {word}`, which is not there"
            );
        }
    }
}

#[test]
fn the_readme_names_every_page_and_every_link_leads_to_a_file() {
    let pages = pages();
    let (_, readme) = pages.last().unwrap();
    let operating = pages.iter().find(|(page, _)| page == "operating.md");
    let (_, operating) = operating.unwrap();
    for (page, text) in &pages {
        let (index, named) = if page.starts_with("operating/") {
            (operating, page.clone())
        } else {
            (readme, format!("docs/{page}"))
        };
        assert!(
            page == "README.md" || index.contains(&format!("({named})")),
            "neither README.md nor docs/operating.md names docs/{page}"
        );
        let folder = match page.as_str() {
            "README.md" => "",
            page if page.starts_with("operating/") => "docs/operating",
            _ => "docs",
        };
        for rest in text.split("](").skip(1) {
            let target = rest.split([')', '#']).next().unwrap();
            if !target.is_empty() && !target.starts_with("https://") {
                let path = repository(folder).join(target);
                assert!(path.exists(), "{page} links to {target}");
            }
        }
    }
    assert!(readme.lines().count() <= 180, "README.md is too long");
}

#[test]
fn the_verdict_on_a_run_names_only_flags_and_commands_that_there_are() {
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
fn the_readme_or_a_page_names_every_section_of_the_settings() {
    let pages = pages();
    let defaults = std::fs::read_to_string(repository("config/topicmill.toml")).unwrap();
    for section in defaults.lines().filter(|line| line.starts_with('[')) {
        assert!(
            pages.iter().any(|(_, text)| text.contains(section)),
            "neither README.md nor a page of docs/ names {section}"
        );
    }
}

/// Names in backticks.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

/// The code and its tests, as one text.
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
fn every_promise_of_the_page_on_security_has_a_test() {
    let text = std::fs::read_to_string(repository("docs/security.md")).unwrap();
    let all = all_code();
    let promises = text.split("## ").find(|part| part.starts_with("Promises"));
    let rows = promises.expect("the section is there").lines();
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
fn the_table_of_the_thirteen_points_names_what_is_there() {
    let text = std::fs::read_to_string(repository("docs/collector.md")).unwrap();
    let all = all_code();
    let mut points = 0;
    for row in text.lines().filter(|line| line.starts_with("| ")) {
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
                file = std::fs::read_to_string(repository("src").join(name))
                    .unwrap_or_else(|error| panic!("docs/collector.md names {name}: {error}"));
            } else {
                assert!(
                    file.contains(name),
                    "docs/collector.md: `{name}` is not in its file"
                );
            }
        }
        assert!(!file.is_empty(), "no place in the code: {row}");
        assert!(quoted(tests).count() > 1, "no tests: {row}");
        for test in quoted(tests) {
            assert!(
                all.contains(&format!("fn {test}()")),
                "docs/collector.md: there is no test `{test}`"
            );
        }
    }
    assert_eq!(points, 13);
}
