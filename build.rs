//! What the binary embeds besides Rust: the migrations, and the commit that `--version` names.

use std::path::{Path, PathBuf};
use std::process::Command;

fn main() {
    let list = ["sqlite", "postgres"].map(migrations).concat();
    let file = PathBuf::from(env("OUT_DIR")).join("migrations.rs");
    std::fs::write(&file, list).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    println!("cargo:rerun-if-env-changed=TOPICMILL_COMMIT");
    println!(
        "cargo:rustc-env=TOPICMILL_VERSION={} ({})",
        env("CARGO_PKG_VERSION"),
        origin()
    );
}

/// A list of the files of a folder in Rust: of `0001_initial.sql` the version 1, `initial`, and what it says.
///
/// The macro of sqlx that reads them is built with all drivers of sqlx once more, for the compiler, SQLite among them.
fn migrations(database: &str) -> String {
    let folder = Path::new(&env("CARGO_MANIFEST_DIR"))
        .join("migrations")
        .join(database);
    println!("cargo:rerun-if-changed={}", folder.display());
    let listed = std::fs::read_dir(&folder).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let mut files: Vec<PathBuf> = listed
        .unwrap_or_else(|error| panic!("{}: {error}", folder.display()))
        .iter()
        .map(std::fs::DirEntry::path)
        // Editors leave files of their own.
        .filter(|file| file.extension().is_some_and(|end| end == "sql"))
        .filter(|file| {
            !file
                .file_name()
                .is_some_and(|name| name.as_encoded_bytes().starts_with(b"."))
        })
        .collect();
    files.sort();
    let files: Vec<String> = files.iter().map(|file| migration(file)).collect();
    format!(
        "pub static {}: &[File] = &[\n{}];\n",
        database.to_uppercase(),
        files.concat()
    )
}

fn migration(file: &Path) -> String {
    let path = file.display().to_string();
    let (version, description) = file
        .file_stem()
        .and_then(|name| name.to_str()?.split_once('_'))
        .and_then(|(version, rest)| Some((version.parse::<i64>().ok()?, rest.replace('_', " "))))
        .filter(|(_, rest)| !rest.contains('.'))
        .unwrap_or_else(|| panic!("{path}: call it as in 0001_initial.sql"));
    format!("    ({version}, {description:?}, include_str!({path:?})),\n")
}

fn env(name: &str) -> String {
    std::env::var(name).unwrap_or_default()
}

/// What the program is built from. Who builds from an archive of the sources, where there is no git, may name the commit in
/// `TOPICMILL_COMMIT`.
fn origin() -> String {
    let given = env("TOPICMILL_COMMIT");
    if !given.is_empty() && given.chars().all(|c| c.is_ascii_alphanumeric()) {
        return format!("commit {given}");
    }
    // Otherwise each commit would compile the crate once more.
    if env("PROFILE") != "release" {
        return "a debug build".to_owned();
    }
    // Sources that were unpacked inside of somebody else's repository are not of its commit.
    let here = env("CARGO_MANIFEST_DIR");
    let commit = Path::new(&here)
        .join(".git")
        .exists()
        .then(|| git(&here, &["rev-parse", "--short=12", "HEAD"]))
        .flatten();
    let Some(commit) = commit else {
        return "from sources without a commit".to_owned();
    };
    for watched in ["HEAD", "logs/HEAD", "index"] {
        if let Some(path) = git(&here, &["rev-parse", "--git-path", watched]) {
            println!("cargo:rerun-if-changed={path}");
        }
    }
    let changed = git(&here, &["status", "--porcelain", "--untracked-files=no"]);
    match changed.as_deref() {
        Some("") => format!("commit {commit}"),
        _ => format!("commit {commit} and changes"),
    }
}

/// What git says, trimmed; `None` where there is none, or where it refuses.
fn git(here: &str, args: &[&str]) -> Option<String> {
    // `status` would refresh the index, which is watched.
    let output = Command::new("git")
        .args(["-C", here, "--no-optional-locks"])
        .args(args)
        .output()
        .ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_owned())
}
