//! What each object store must do: list, read in spite of faults, write whole, lock.
//!
//! `make test` asks moto's S3, `make check-stores` the same of Azurite (`TOPICMILL_TEST_STORE=az`), and of moto in Google's words
//! (`gs`).

use std::sync::Arc;
use std::time::Duration;

use axum::http::Method;
use chrono::{DateTime, Utc};
use topicmill::clock::{ManualClock, SharedClock, SystemClock};
use topicmill::hub::HubSource;
use topicmill::objects::{ObjectError, Objects, Upload, Version};

use crate::support::bucket::{Bucket, Fault};

fn objects(bucket: &Bucket, clock: SharedClock) -> Objects {
    let hub = || HubSource {
        endpoint: "http://127.0.0.1:9".to_owned(),
        token: None,
        cache: None,
    };
    Objects::new(clock, bucket.variables(), hub)
}

fn clock() -> Arc<ManualClock> {
    let now: DateTime<Utc> = "2026-11-22T12:00:00Z".parse().unwrap();
    ManualClock::at(now)
}

/// Bytes that tell where they stand.
fn content(length: usize) -> Vec<u8> {
    (0..length)
        .map(|at| u8::try_from(at * 7 % 251).unwrap())
        .collect()
}

/// Each error of a text and everything below it, as it would be shown and logged.
fn told(bucket: &Bucket, error: &ObjectError) -> String {
    let told = format!("{error} {error:?}");
    for (name, value) in bucket.variables() {
        let is_secret = name.contains("SECRET") || name.ends_with("_KEY");
        assert!(!is_secret || !told.contains(&value), "{told}");
    }
    told
}

#[tokio::test(flavor = "multi_thread")]
async fn objects_are_listed_and_read_in_spite_of_faults() {
    let Some(bucket) = Bucket::start().await else {
        return;
    };
    let file = content(5_000_000);
    bucket.put("in/a.parquet", file.clone()).await;
    bucket.put("in/deep/b.parquet", "b").await;
    bucket.put("in2/c.parquet", "c").await;
    let clock = clock();
    let objects = objects(&bucket, clock.clone());
    let folder = bucket.address("in");
    // A list, the first two requests for a range, and one in the middle.
    bucket.injure(
        Method::GET,
        bucket.words().list,
        Fault::Status(503, "SlowDown", None),
        1,
    );
    let found = objects.folder(&folder, "in", true).unwrap();
    let keys: Vec<&str> = found.iter().map(|found| found.key.as_str()).collect();
    assert_eq!(keys, ["in/a.parquet", "in/deep/b.parquet"]);
    assert_eq!(clock.sleeps().len(), 1);
    assert!(objects.one(&bucket.address("in")).unwrap().is_none());
    assert!(
        objects
            .one(&bucket.address("in/a.parquet"))
            .unwrap()
            .is_some()
    );
    for fault in [
        Fault::Cut,
        Fault::Short,
        Fault::Status(503, "SlowDown", Some("7")),
        Fault::Status(500, "InternalError", None),
        Fault::Status(400, "RequestTimeout", None),
        Fault::LostAnswer,
    ] {
        bucket.injure(Method::GET, "a.parquet", fault, 1);
        let opened = objects.open(&folder, &found[0]).unwrap();
        let mut read = vec![0; file.len()];
        opened.read_at(0, &mut read).unwrap();
        assert!(read == file);
    }
    assert_eq!(bucket.waiting(), 0);
    // The store's own wait is the one that is waited.
    assert_eq!(clock.sleeps()[3], Duration::from_secs(7));
    // A list and three blocks, and one try more for each fault: nothing is fetched twice.
    let gets = bucket
        .seen()
        .into_iter()
        .filter(|(_, path, _)| path.ends_with("/in/a.parquet"));
    let ranges = gets.filter(|(_, _, range)| range.is_some()).count();
    assert_eq!(ranges, 6 * 3 + 6);
}

#[tokio::test(flavor = "multi_thread")]
async fn files_of_any_size_are_written_whole() {
    let Some(bucket) = Bucket::start().await else {
        return;
    };
    let objects = objects(&bucket, SystemClock::shared());
    let output = objects.output(&bucket.address("out/")).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let lock = output.lock("x.lock", "somebody", "token").unwrap();
    for length in [0, 1_000, 20 << 20] {
        let path = folder.path().join("file");
        std::fs::write(&path, content(length)).unwrap();
        if length > 1_000 {
            bucket.injure(Method::PUT, "file", Fault::Status(503, "SlowDown", None), 1);
            let (method, path) = bucket.words().complete;
            bucket.injure(method, path, Fault::LostAnswer, 1);
        }
        output
            .put_file("file", &path, &lock, &Upload::replacing())
            .unwrap();
        assert!(bucket.get("out/file").await.unwrap() == content(length));
    }
    assert_eq!(bucket.waiting(), 0);
    drop(lock);
    // Nothing that was begun lies about.
    assert!(!bucket.has_begun().await);
    let names: Vec<String> = output
        .list()
        .unwrap()
        .into_iter()
        .map(|(name, _)| name)
        .collect();
    assert_eq!(names, ["file", "x.lock"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn of_two_that_take_a_lock_one_has_it() {
    let Some(bucket) = Bucket::start().await else {
        return;
    };
    let ours = objects(&bucket, SystemClock::shared());
    let theirs = objects(&bucket, SystemClock::shared());
    let place = bucket.address("out");
    let (one, other) = (ours.output(&place).unwrap(), theirs.output(&place).unwrap());
    // The answer to the write that takes it is lost.
    bucket.injure(Method::PUT, "s.lock", Fault::LostAnswer, 1);
    let lock = one.lock("s.lock", "process 1 on here", "one").unwrap();
    lock.check().unwrap();
    let error = other
        .lock("s.lock", "process 2 on there", "other")
        .err()
        .unwrap();
    assert!(matches!(error, ObjectError::Held { .. }), "{error:?}");
    assert!(
        told(&bucket, &error).starts_with("process 1 on here works on it"),
        "{error}"
    );
    bucket.injure(Method::PUT, "s.lock", Fault::LostAnswer, 1);
    lock.renew().unwrap();
    drop(lock);
    // A lock that was given back is free at once.
    let lock = other.lock("s.lock", "process 2 on there", "other").unwrap();
    // Somebody else writes it: as if its time had been up.
    let (note, version) = one.read("s.lock").unwrap().unwrap();
    let note = String::from_utf8(note.to_vec())
        .unwrap()
        .replace("other", "third");
    one.put("s.lock", note.into(), &version).unwrap();
    assert!(matches!(lock.renew(), Err(ObjectError::Lost(_))));
    assert!(matches!(lock.check(), Err(ObjectError::Lost(_))));
    assert!(lock.remove().is_err());
    assert!(bucket.keys().await.contains(&"out/s.lock".to_owned()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_whose_holder_died_is_free_after_its_time() {
    let Some(bucket) = Bucket::start().await else {
        return;
    };
    let objects = objects(&bucket, SystemClock::shared());
    let output = objects.output(&bucket.address("out")).unwrap();
    let note = r#"{"holder":"process 1 on here","token":"one","beat":3,"free":false}"#;
    bucket.put("out/s.lock", note).await;
    let take = || output.lock("s.lock", "process 2 on there", "two");
    // The store's clock counts, whatever ours says.
    bucket.let_pass(52);
    let error = take().err().unwrap();
    assert!(matches!(error, ObjectError::Held { .. }), "{error:?}");
    assert!(
        told(&bucket, &error).contains("process 1 on here works on it, and was heard of 5"),
        "{error}"
    );
    bucket.let_pass(15);
    let lock = take().unwrap();
    lock.remove().unwrap();
    assert_eq!(bucket.keys().await, Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_heeds_no_conditions_is_found_out() {
    let Some(bucket) = Bucket::start().await else {
        return;
    };
    if !bucket.be_deaf() {
        return;
    }
    let objects = objects(&bucket, clock());
    let output = objects.output(&bucket.address("out")).unwrap();
    let error = output.lock("s.lock", "somebody", "one").err().unwrap();
    assert!(matches!(error, ObjectError::Unconditional(_)), "{error:?}");
    assert!(
        told(&bucket, &error).contains("takes no conditional writes"),
        "{error}"
    );
    assert!(output.put("x", "1".into(), &Version::of_nothing()).is_ok());
}
