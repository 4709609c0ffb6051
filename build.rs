//! Tells cargo what the binary embeds besides Rust: migrations are read when the crate is compiled.

fn main() {
    println!("cargo:rerun-if-changed=migrations/sqlite");
    println!("cargo:rerun-if-changed=migrations/postgres");
}
