//! A terminal of a given width, simulated by `script` from util-linux.

use std::process::Stdio;

use super::notice::not_tested;
use super::program::{CommandLine, Program};

/// Returns the program's output on a terminal of 24 lines, and its exit code; `None` if `script` is not installed.
pub fn on_a_terminal(
    program: &Program,
    columns: u32,
    line: &(impl CommandLine + ?Sized),
) -> Option<(String, i32)> {
    let command = program.command(line);
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    let words = shlex::try_join(words.map(|word| word.to_str().unwrap())).unwrap();
    // The log is discarded, because a terminal mixes stdout and stderr.
    let line = format!("stty cols {columns} rows 24; {words} 2>/dev/null; echo code=$?");
    let mut script = std::process::Command::new("script");
    script
        .args(["-qec", &line, "/dev/null"])
        .current_dir(program.folder.path());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => script.env(name, value),
            None => script.env_remove(name),
        };
    }
    script.env("LC_ALL", "C.UTF-8").env("TERM", "xterm");
    let output = match script.stdin(Stdio::null()).output() {
        Ok(output) => output,
        Err(error) => {
            assert!(std::env::var_os("CI").is_none(), "`script`: {error}");
            not_tested(&format!("on a terminal: `script`: {error}"));
            return None;
        }
    };
    let text = String::from_utf8(output.stdout)
        .unwrap()
        .replace("\r\n", "\n");
    let (shown, code) = text
        .rsplit_once("code=")
        .expect("the shell prints the exit code");
    Some((shown.to_owned(), code.trim().parse().unwrap()))
}
