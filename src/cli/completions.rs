//! `topicmill completions SHELL`: prints a completion script.

use clap::{Args, CommandFactory};
use clap_complete::Shell;

use super::{Cli, CliError, Exit, output};

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  topicmill completions bash > topicmill.bash
  topicmill completions zsh > _topicmill")]
pub struct Completions {
    /// Print the script for this shell
    shell: Shell,
}

impl Completions {
    pub fn run(self) -> Result<Exit, CliError> {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut Cli::command(), "topicmill", &mut script);
        output::write(&String::from_utf8_lossy(&script))?;
        Ok(Exit::Done)
    }
}
