//! Histories of imports, purges and crashes, after which no byte of a purged text may be in the files of the database.
//!
//! On SQLite, these are all files in the database's folder; on PostgreSQL, those of its tables and indexes, but not the
//! server's write-ahead log, from which a purge removes nothing.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Duration;

use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestRng, TestRunner};
use topicmill_core::{Post, PurgeReason, Reply, SourceKind};
use topicmill_store::{Access, Claim, Store, Written};

use crate::purge::{Scene, post};
use crate::support::postgres::{OwnServer, TestDatabase, sqlite};

const POSTS: u8 = 6;

/// One step of a history. Posts are numbers; number `n + POSTS` is a crosspost of post `n`, and `n + 2 * POSTS` a comment
/// on it, which is stored with its title.
#[derive(Debug, Clone)]
enum Event {
    /// Imports a post with this version of its text, repeated this many times.
    Import(u8, u8, u16),
    /// Imports a crosspost of this post, with its latest imported text.
    Crosspost(u8),
    /// Imports a comment on this post.
    Comment(u8),
    Label,
    /// Claims everything; the labels are written only by `Complete`.
    Claim,
    Complete,
    Wait(u8),
    Retention,
    Purge(u8),
    /// Imports a row without text that reports this post as deleted.
    Report(u8),
    /// Crashes the program or the server.
    Crash,
}

fn event() -> impl Strategy<Value = Event> {
    let post = 0..POSTS;
    prop_oneof![
        6 => (post.clone(), 0..4_u8, 1..40_u16).prop_map(|(p, v, n)| Event::Import(p, v, n)),
        2 => (post.clone(), 0..4_u8, 40..900_u16).prop_map(|(p, v, n)| Event::Import(p, v, n)),
        3 => post.clone().prop_map(Event::Crosspost),
        3 => post.clone().prop_map(Event::Comment),
        2 => Just(Event::Label),
        2 => Just(Event::Claim),
        2 => Just(Event::Complete),
        2 => (1..40_u8).prop_map(Event::Wait),
        1 => Just(Event::Retention),
        3 => (0..3 * POSTS).prop_map(Event::Purge),
        2 => post.prop_map(Event::Report),
        1 => Just(Event::Crash),
    ]
}

/// Returns a word that identifies a version of a post's text in the bytes of a file.
fn word(post: u8, version: u8) -> String {
    format!("zq{post:02}v{version}qz")
}

fn id(post: u8) -> String {
    format!("p{post:02}")
}

fn name(number: u8) -> String {
    let kind = if number < 2 * POSTS { "t3" } else { "t1" };
    format!("{kind}_{}", id(number))
}

/// Returns neighbours of a post that grow and shrink with it, so that rows move between pages.
fn others(number: u8, version: u8, length: u16) -> Vec<Post> {
    (0..40)
        .map(|n| {
            let words = 1 + (usize::from(length) + n * 7 + usize::from(version) * 13) % 40;
            Post {
                selftext: "other words ".repeat(words),
                ..post(
                    &format!("{}o{n:02}", id(number)),
                    &format!("Other {number} {n}"),
                )
            }
        })
        .collect()
}

/// Returns the words of [`word`] found in the files.
fn words_in(files: &[PathBuf]) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for file in files {
        let bytes = match std::fs::read(file) {
            // PostgreSQL renames temporary files at any time.
            Err(error) if error.kind() == ErrorKind::NotFound => continue,
            bytes => bytes.unwrap(),
        };
        for at in memchr::memmem::find_iter(&bytes, b"zq") {
            let word = bytes.get(at..at + 8).filter(|word| word.ends_with(b"qz"));
            found.extend(word.map(|word| String::from_utf8_lossy(word).into_owned()));
        }
    }
    found
}

/// Returns the words of [`word`] in the stored titles and texts.
async fn stored_words(scene: &Scene) -> BTreeSet<String> {
    let texts = scene
        .rows("SELECT title || ' ' || selftext FROM things")
        .await;
    let words = texts.iter().flat_map(|text| text.split(' '));
    let words = words.filter(|word| word.starts_with("zq"));
    words.map(str::to_owned).collect()
}

fn files_of(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap();
    entries.map(|entry| entry.unwrap().path()).collect()
}

/// Tracks the words that were stored and the words that must be gone.
#[derive(Default)]
struct Model {
    /// The words of each post that was not purged.
    words: BTreeMap<u8, BTreeSet<String>>,
    /// The latest text of each post.
    latest: BTreeMap<u8, Post>,
    gone: BTreeSet<String>,
    purged: BTreeSet<u8>,
}

impl Model {
    fn import(&mut self, number: u8, version: u8, length: u16) -> Post {
        let text = word(number, version);
        let post = Post {
            selftext: format!("{text} ").repeat(length.into()),
            ..post(&id(number), &text)
        };
        self.words.entry(number).or_default().insert(text);
        self.latest.insert(number, post.clone());
        if self.purged.contains(&number) {
            self.purge(number);
        }
        post
    }

    /// Returns a crosspost with its own title, which must be gone once either of the two posts is purged.
    fn crosspost(&mut self, of: u8) -> Option<Post> {
        let shown = self.latest.get(&of)?.clone();
        let number = of + POSTS;
        let title = word(number, 0);
        let mut words = BTreeSet::from([title.clone()]);
        words.extend(self.words.get(&of).cloned().unwrap_or_default());
        self.words.insert(number, words);
        if self.purged.contains(&of) || self.purged.contains(&number) {
            self.gone.insert(title.clone());
        }
        Some(Post {
            title,
            crosspost_parent: Some(shown.fullname.clone()),
            is_self: false,
            permalink: None,
            fullname: id(number).parse().unwrap(),
            ..shown
        })
    }

    fn purge(&mut self, number: u8) {
        self.purged.insert(number);
        // Only the title of a crosspost must go: its body belongs to the original, which is still stored.
        if number >= POSTS {
            self.gone.insert(word(number, 0));
            return;
        }
        self.gone
            .extend(self.words.get(&number).cloned().unwrap_or_default());
        if self.words.contains_key(&(number + POSTS)) {
            self.gone.insert(word(number + POSTS, 0));
        }
    }
}

/// A database that can crash and whose files can be read.
enum Place<'a> {
    Sqlite(RefCell<TestDatabase>),
    Postgres(&'a OwnServer, TestDatabase),
}

impl Place<'_> {
    fn database_url(&self) -> String {
        match self {
            Self::Sqlite(database) => database.borrow().url.clone(),
            Self::Postgres(_, database) => database.url.clone(),
        }
    }

    /// Crashes the process or the server and opens what it leaves behind.
    async fn crash(&self, scene: &mut Scene) {
        match self {
            Self::Sqlite(database) => {
                let next = sqlite();
                let file = |url: &str| url.trim_start_matches("sqlite:").to_owned();
                let (from, to) = (file(&database.borrow().url), file(&next.url));
                for suffix in ["", "-wal"] {
                    // The WAL may not exist.
                    let _ = std::fs::copy(format!("{from}{suffix}"), format!("{to}{suffix}"));
                }
                drop(database.replace(next));
            }
            Self::Postgres(server, _) => server.restart("immediate"),
        }
        let store = Store::open(&self.database_url(), Access::Create)
            .await
            .unwrap();
        scene.context.store = store.with_caller_time().reading_titles(true);
    }

    async fn files(&self) -> Vec<PathBuf> {
        match self {
            Self::Sqlite(database) => {
                let url = database.borrow().url.clone();
                let file = PathBuf::from(url.trim_start_matches("sqlite:"));
                files_of(file.parent().unwrap())
            }
            Self::Postgres(_, database) => {
                // A checkpoint removes truncated files and writes memory to disk.
                database.run("CHECKPOINT").await;
                files_of(&database.server_folder().await)
            }
        }
    }
}

async fn happen(
    event: &Event,
    model: &mut Model,
    scene: &mut Scene,
    place: &Place<'_>,
    claims: &mut Vec<(topicmill_store::RunId, Claim)>,
) {
    let target = scene.target().await;
    match *event {
        Event::Import(number, version, length) => {
            let mut posts = others(number, version, length);
            posts.push(model.import(number, version, length));
            scene.save(SourceKind::Import, &posts).await;
        }
        Event::Crosspost(of) => {
            if let Some(post) = model.crosspost(of) {
                scene.save(SourceKind::Import, &[post]).await;
            }
        }
        Event::Comment(on) => {
            let text = word(on + 2 * POSTS, 0);
            let comment = Post {
                title: String::new(),
                selftext: format!("{text} ").repeat(1 + usize::from(on) * 60),
                reply: Reply {
                    post: Some(id(on).parse().unwrap()),
                    ..Reply::default()
                },
                permalink: None,
                ..post(&name(on + 2 * POSTS), "")
            };
            scene.save(SourceKind::Import, &[comment]).await;
        }
        Event::Label => {
            scene.label().await;
        }
        Event::Claim => {
            scene.enqueue(target).await;
            claims.push(scene.claim(target).await);
        }
        Event::Complete => {
            let Some((run, claim)) = claims.pop() else {
                return;
            };
            let _: Written = scene.complete(target, run, &claim).await;
        }
        Event::Wait(hours) => scene.clock.advance(Duration::from_hours(hours.into())),
        Event::Retention => {
            scene.retain().await;
            // Ask the database which texts are gone: retention counts from a post's first insert, which the model does
            // not track.
            let taken = "SELECT fullname FROM things WHERE text_purged_at IS NOT NULL";
            for fullname in scene.rows(taken).await {
                // The neighbouring posts have none of the words.
                let Ok(number) = fullname[4..].parse::<u8>() else {
                    continue;
                };
                if number < POSTS {
                    model
                        .gone
                        .extend(model.words.get(&number).cloned().unwrap_or_default());
                } else {
                    model.gone.insert(word(number, 0));
                }
            }
        }
        Event::Purge(number) => {
            if let Place::Postgres(_, database) = place {
                // Autovacuum does the same: column statistics may contain values of deleted rows.
                database.run("ANALYZE things").await;
            }
            model.purge(number);
            scene.request(&name(number)).await;
        }
        Event::Report(number) => {
            if model.latest.contains_key(&number) {
                model.purge(number);
            }
            let report = Post {
                title: String::new(),
                selftext: String::new(),
                permalink: None,
                removal: Some(PurgeReason::Deleted),
                ..post(&id(number), "")
            };
            scene.save(SourceKind::Import, &[report]).await;
        }
        Event::Crash => place.crash(scene).await,
    }
}

async fn history(events: &[Event], place: &Place<'_>) -> Result<(), TestCaseError> {
    let mut scene = Scene::at(&place.database_url()).await;
    scene.context.store = scene.context.store.reading_titles(true);
    let (mut model, mut claims) = (Model::default(), Vec::new());
    for event in events {
        happen(event, &mut model, &mut scene, place, &mut claims).await;
        // An import does not restore a text that retention removed, so words that are gone stay gone.
        let stored = stored_words(&scene).await;
        let back: Vec<&String> = model.gone.intersection(&stored).collect();
        prop_assert!(back.is_empty(), "{back:?} stored again after {event:?}");
        for orphans in [
            "pair_logits l WHERE NOT EXISTS (SELECT 1 FROM things p WHERE p.text_hash = l.text_hash)",
            "text_vectors v WHERE NOT EXISTS (SELECT 1 FROM things p WHERE p.text_hash = v.text_hash AND p.has_text)",
        ] {
            let count = scene.count(orphans).await;
            prop_assert_eq!(count, 0, "{} after {:?}", orphans, event);
        }
    }
    // A purge that removes nothing, followed by the rewrite that `db vacuum` does.
    scene.request("nobody").await;
    if matches!(place, Place::Postgres(..)) {
        let rewritten = scene.store().purging().rewrite().await.unwrap();
        prop_assert_eq!(rewritten, topicmill_store::Rewritten::Complete);
    }
    prop_assert!(!scene.is_rewrite_due().await);
    let left = words_in(&place.files().await);
    // The files are the right ones if they contain all that is still stored.
    let stored = stored_words(&scene).await;
    let missed: Vec<&String> = stored.difference(&left).collect();
    prop_assert!(missed.is_empty(), "{missed:?} not found in the files");
    let lingers: Vec<&String> = model.gone.intersection(&left).collect();
    prop_assert!(lingers.is_empty(), "{lingers:?} remains in the files");
    scene.store().close().await.unwrap();
    Ok(())
}

/// Returns a runner that tries the same histories each time, so that a failure can be repeated.
fn runner(cases: u32) -> TestRunner {
    let config = Config {
        cases,
        failure_persistence: None,
        max_shrink_iters: 200,
        ..Config::default()
    };
    TestRunner::new_with_rng(config, TestRng::deterministic_rng(RngAlgorithm::ChaCha))
}

#[test]
fn a_few_histories_leave_no_purged_bytes_in_sqlite() {
    histories_in_sqlite(6);
}

#[test]
#[ignore = "deep: long histories"]
fn no_history_leaves_purged_bytes_in_sqlite() {
    histories_in_sqlite(40);
}

fn histories_in_sqlite(cases: u32) {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let histories = proptest::collection::vec(event(), 1..40);
    let ended = runner(cases).run(&histories, |events| {
        let place = Place::Sqlite(RefCell::new(sqlite()));
        runtime.block_on(history(&events, &place))
    });
    if let Err(error) = ended {
        panic!("{error}");
    }
}

#[test]
#[ignore = "deep: long histories"]
fn no_history_leaves_purged_bytes_in_postgres() {
    let Some(server) = OwnServer::start() else {
        return;
    };
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let number = std::cell::Cell::new(0);
    let histories = proptest::collection::vec(event(), 1..30);
    let ended = runner(6).run(&histories, |events| {
        number.set(number.get() + 1);
        let database = server.database(&format!("bytes_{}", number.get()));
        let place = Place::Postgres(&server, database);
        runtime.block_on(async {
            // Uncompressed, so that the words can be found.
            let store = Store::open(&place.database_url(), Access::Create)
                .await
                .unwrap();
            store.close().await.unwrap();
            if let Place::Postgres(_, database) = &place {
                database
                    .run("ALTER TABLE things ALTER COLUMN selftext SET STORAGE EXTERNAL")
                    .await;
            }
            history(&events, &place).await
        })
    });
    if let Err(error) = ended {
        panic!("{error}");
    }
}
