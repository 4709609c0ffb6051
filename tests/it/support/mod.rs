//! Shared fixtures: databases, the program, fakes of Reddit and the archive, the engine.
//!
//! A test of the program starts with a [`Program`](program::Program): `Program::new()` has an empty SQLite database in
//! its folder, `Program::on(database)` uses another, and `.imported(30)` or `.labelled(30)` fill it with sample posts.
//! A command line is a string, or a list if an argument comes from elsewhere:
//!
//! ```ignore
//! let program = Program::new().labelled(30);
//! program.ok("export posts.csv --where \"label = 'food'\"");
//! program.run("classify --limit none").expect_exit(2, "--limit");
//! assert_eq!(program.count("labeled_posts WHERE label = 'food'"), 10);
//! assert_eq!(program.scalar("SELECT MAX(reddit_score) FROM posts"), 29);
//! assert_eq!(program.rows("SELECT label, COUNT(*) FROM …"), json!([["food", 10], …]));
//! ```
//!
//! A test of the program runs on one database (SQLite), unless the difference between the databases is its subject.
//! Cases are rows of [`table!`](topicmill_core::table), and a test that must wait for something uses [`wait`].

pub mod arctic_shift;
pub mod browser;
pub mod builders;
pub mod engine;
pub mod exposition;
pub mod golden;
pub mod hub;
pub mod notice;
pub mod parquet_files;
pub mod postgres;
pub mod program;
pub mod proxy;
pub mod reddit;
pub mod rows;
pub mod scene;
pub mod terminal;
pub mod wait;
pub mod wire;
