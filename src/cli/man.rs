//! `topicmill man DIR`: writes man pages and completion scripts, generated from the same text as `--help`.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use clap::{Args, Command, CommandFactory, ValueEnum};
use clap_complete::Shell;
use clap_mangen::roff::{Roff, bold, roman};

use super::{Cli, CliError, Exit, output};

/// Extra sections of the main page: their heading, and lines with a term and its meaning.
const EXTRA_SECTIONS: [(&str, &str); 3] = [
    (
        "EXIT STATUS",
        "0: success
1: completed, but some rows or topics failed, a check found a problem, or --require-better was not met
2: invalid flag or setting
3: Reddit rejected or blocked the credentials
4: database error
5: model or device error
70: a bug in topicmill
75: temporary failure, try again later
130, 143: stopped by a signal, after storing the work in progress",
    ),
    (
        "ENVIRONMENT",
        "TOPICMILL__SECTION__KEY: a setting; for secrets and the database URL, the same name with _FILE appended \
         names a file that contains the value
DATABASE_URL, DATABASE_URL_FILE: the database URL, or a file that contains it
TOPICMILL_LOG: the log level, in the syntax of RUST_LOG
ORT_DYLIB_PATH: the path of the ONNX Runtime library",
    ),
    (
        "FILES",
        "topicmill.toml: settings in the current folder; --config names a different file
/etc/topicmill/config.toml: settings of the Debian package's services
~/.local/share/topicmill: the user's libraries and models",
    ),
];

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  topicmill man man
  topicmill man ~/.local/share/man

`man` writes DIR/man1/topicmill.1 and a page for each command, and a completion script for each shell to \
DIR/completions. Read a page with `man -l DIR/man1/topicmill-collect.1`, or add ~/.local/share/man to MANPATH.")]
pub struct Man {
    /// Write to DIR; existing files are overwritten
    #[arg(value_name = "DIR")]
    folder: PathBuf,
}

impl Man {
    pub fn run(self) -> Result<Exit, CliError> {
        let [pages, scripts] = ["man1", "completions"].map(|name| self.folder.join(name));
        for folder in [&pages, &scripts] {
            fs::create_dir_all(folder).map_err(CliError::writing(folder))?;
        }
        let mut command = Cli::command().disable_help_subcommand(true);
        command.build();
        let count = write_pages(&command, &[], &pages).map_err(CliError::writing(&pages))?;
        for shell in Shell::value_variants() {
            clap_complete::generate_to(*shell, &mut Cli::command(), "topicmill", &scripts)
                .map_err(CliError::writing(&scripts))?;
        }
        output::write(&format!(
            "{count} pages in {}, {} scripts in {}\n",
            pages.display(),
            Shell::value_variants().len(),
            scripts.display()
        ))?;
        Ok(Exit::Done)
    }
}

/// Writes the page of a command and of each subcommand, recursively. Returns the number of pages.
fn write_pages(command: &Command, above: &[&str], folder: &Path) -> io::Result<usize> {
    let names = [above, &[command.get_name()]].concat();
    let mut page = Vec::new();
    write_page(command, &names, &mut page)?;
    // Formatters warn about a line break next to a vertical space.
    let page = String::from_utf8_lossy(&page).replace("\n.br\n\n.br\n", "\n.sp\n");
    fs::write(folder.join(format!("{}.1", names.join("-"))), page)?;
    let mut count = 1;
    for below in command.get_subcommands().filter(|it| !it.is_hide_set()) {
        count += write_pages(below, &names, folder)?;
    }
    Ok(count)
}

/// Renders one page. Examples get a section without line filling; `clap_mangen` would join their lines.
fn write_page(command: &Command, names: &[&str], to: &mut Vec<u8>) -> io::Result<()> {
    let page = clap_mangen::Man::new(command.clone());
    // The empty date needs quotes, or the next field takes its place.
    let (title, version) = (names.join("-").to_uppercase(), env!("CARGO_PKG_VERSION"));
    writeln!(
        to,
        ".TH {title} 1 \"\" \"topicmill {version}\" \"topicmill\""
    )?;
    page.render_name_section(to)?;
    page.render_synopsis_section(to)?;
    page.render_description_section(to)?;
    if command.get_arguments().any(|it| !it.is_hide_set()) {
        page.render_options_section(to)?;
    }
    if command.has_subcommands() {
        page.render_subcommands_section(to)?;
    }
    let after = command.get_after_help().map(ToString::to_string);
    write_after(after.as_deref().unwrap_or_default(), to)?;
    if names.len() == 1 {
        for (heading, lines) in EXTRA_SECTIONS {
            write_list(heading, lines, to)?;
        }
    }
    Ok(())
}

/// Writes the part of a help text after the flags: examples and other paragraphs.
fn write_after(after: &str, to: &mut Vec<u8>) -> io::Result<()> {
    let mut roff = Roff::new();
    for part in after.split("\n\n").filter(|part| !part.trim().is_empty()) {
        if let Some(examples) = part.strip_prefix("Examples:\n") {
            roff.control("SH", ["EXAMPLES"]);
            roff.control("nf", []);
            for line in examples.lines() {
                roff.text([roman(line.trim())]);
            }
            roff.control("fi", []);
        } else {
            roff.control("SH", ["NOTES"]);
            roff.text([roman(part)]);
        }
    }
    roff.to_writer(to)
}

fn write_list(heading: &str, lines: &str, to: &mut Vec<u8>) -> io::Result<()> {
    let mut roff = Roff::new();
    roff.control("SH", [heading]);
    for (word, meaning) in lines.lines().filter_map(|line| line.split_once(": ")) {
        roff.control("TP", []);
        roff.text([bold(word)]);
        roff.text([roman(meaning)]);
    }
    roff.to_writer(to)
}
