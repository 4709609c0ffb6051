//! Embeds the commit that `--version` shows.

use std::path::Path;
use std::process::Command;

fn main() {
    println!("cargo:rerun-if-env-changed=TOPICMILL_COMMIT");
    println!(
        "cargo:rustc-env=TOPICMILL_VERSION={} ({})",
        env("CARGO_PKG_VERSION"),
        origin()
    );
}

fn env(name: &str) -> String {
    std::env::var(name).unwrap_or_default()
}

/// Describes the source code from which the program is built. For a build from an archive without git,
/// `TOPICMILL_COMMIT` may name the commit.
fn origin() -> String {
    let configured = env("TOPICMILL_COMMIT");
    if !configured.is_empty() && configured.chars().all(|c| c.is_ascii_alphanumeric()) {
        return format!("commit {configured}");
    }
    // If it named the commit, a debug build would recompile the crate after each commit.
    if env("PROFILE") != "release" {
        return "a debug build".to_owned();
    }
    // Requires `.git` in this folder, because source code that was unpacked inside a different repository is not at
    // that repository's commit.
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

/// Returns the trimmed output of git; `None` if git is missing or fails.
fn git(here: &str, args: &[&str]) -> Option<String> {
    // Without `--no-optional-locks`, `status` would refresh the index, which is watched.
    let output = Command::new("git")
        .args(["-C", here, "--no-optional-locks"])
        .args(args)
        .output()
        .ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_owned())
}
