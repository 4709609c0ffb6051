//! Embeds the migrations.

use std::path::{Path, PathBuf};

fn main() {
    let list = ["sqlite", "postgres"].map(migrations).concat();
    let file = PathBuf::from(env("OUT_DIR")).join("migrations.rs");
    std::fs::write(&file, list).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
}

/// Returns Rust code for a list of migrations. `0001_initial.sql` becomes version 1 with the description `initial` and
/// the content of the file.
///
/// sqlx's own macro is not used, because it would compile all sqlx drivers, including SQLite, a second time for the
/// build.
fn migrations(database: &str) -> String {
    let folder = Path::new(&env("CARGO_MANIFEST_DIR"))
        .join("../../migrations")
        .join(database);
    println!("cargo:rerun-if-changed={}", folder.display());
    let listed = std::fs::read_dir(&folder).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let mut files: Vec<PathBuf> = listed
        .unwrap_or_else(|error| panic!("{}: {error}", folder.display()))
        .iter()
        .map(std::fs::DirEntry::path)
        // Skips editors' temporary files.
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
        .unwrap_or_else(|| panic!("{path}: name it like 0001_initial.sql"));
    format!("    ({version}, {description:?}, include_str!({path:?})),\n")
}

fn env(name: &str) -> String {
    std::env::var(name).unwrap_or_default()
}
