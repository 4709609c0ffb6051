//! Tests `--help`: every line fits a terminal of 80 columns, and every command has two examples that parse.

use std::collections::BTreeMap;

use clap::error::ErrorKind;
use clap::{Command, CommandFactory, Parser};
use topicmill::cli::Cli;

/// Calls `check` for a command and, recursively, its subcommands, each with the words that invoke it.
fn each(command: &mut Command, path: &[String], check: &mut dyn FnMut(&mut Command, &[String])) {
    check(command, path);
    for below in command.get_subcommands_mut() {
        // A hidden command only names its replacement.
        if below.get_name() != "help" && !below.is_hide_set() {
            let path = [path, &[below.get_name().to_owned()]].concat();
            each(below, &path, check);
        }
    }
}

fn each_command(check: &mut dyn FnMut(&mut Command, &[String])) {
    let mut cli = Cli::command();
    cli.build();
    each(&mut cli, &[], check);
}

#[test]
fn help_texts_fit_eighty_columns() {
    let mut commands = 0;
    each_command(&mut |command, path| {
        commands += 1;
        let help = command.render_long_help().to_string();
        for line in help.lines() {
            assert!(line.chars().count() <= 80, "{path:?}: {line}");
        }
    });
    assert!(commands > 30, "{commands}");
}

#[test]
fn the_short_help_of_commands_with_many_flags_fits_two_screens() {
    /// Lines of two screens of a terminal window with thirty lines.
    const TWO_SCREENS: usize = 60;
    let mut lines = BTreeMap::new();
    each_command(&mut |command, path| {
        let help = command.render_help().to_string();
        lines.insert(path.join(" "), help.lines().count());
    });
    for command in ["classify", "run", "import", "score"] {
        let lines = lines[command];
        assert!(lines <= TWO_SCREENS, "{command}: {lines} lines");
    }
}

#[test]
fn every_command_has_two_examples_that_parse() {
    each_command(&mut |command, path| {
        let after = command.get_after_help().map(ToString::to_string);
        let after = after.unwrap_or_else(|| panic!("{path:?} has no examples"));
        let lines = after.lines().skip_while(|line| *line != "Examples:");
        let lines: Vec<&str> = lines
            .skip(1)
            .map_while(|line| line.strip_prefix("  "))
            .collect();
        assert!(lines.len() >= 2, "{path:?} has fewer than two examples");
        for line in lines {
            // A redirection ends the program's own words.
            let command = line.split(" > ").next().unwrap();
            let words = shlex::split(command).expect("each quote is closed");
            assert!(path.iter().all(|name| words.contains(name)), "{line}");
            if let Err(error) = Cli::try_parse_from(&words) {
                assert_eq!(error.kind(), ErrorKind::DisplayHelp, "{line}: {error}");
            }
        }
    });
}
