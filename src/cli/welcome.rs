//! The text of `topicmill` without a command, in a folder without a database: three ways to begin.

use clap::error::ErrorKind;

use super::{App, Global};

/// Ways to begin.
const TEXT: &str = "\
topicmill collects Reddit posts, labels them with topics in your words, and
stores posts and labels in a database for SQL. Begin with
  sample posts   topicmill demo
  your topics    topicmill labels new my-topics.toml \"video games\" cooking
                 topicmill run --pipeline my-topics.toml
  your posts     topicmill import posts.csv
                 topicmill classify --pipeline my-topics.toml
`topicmill --help` lists all commands.
";

/// Returns the text if the program was started without arguments, and the database of the settings does not exist.
pub(super) fn text(error: &clap::Error) -> Option<&'static str> {
    let is_bare = error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
        && std::env::args_os().len() == 1;
    if !is_bare {
        return None;
    }
    let app = App::load(&Global::default()).ok()?;
    app.is_database_missing().then_some(TEXT)
}
