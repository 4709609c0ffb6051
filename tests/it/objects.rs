//! Object stores as they are, and as they are on a bad day: a real S3 behind a proxy that injures its answers, and a hub.

use std::sync::Arc;
use std::time::Duration;

use axum::http::Method;
use chrono::{DateTime, Utc};
use topicmill::clock::{ManualClock, SharedClock, SystemClock};
use topicmill::hub::HubSource;
use topicmill::objects::{Address, ObjectError, Objects, Version};

use crate::support::bucket::{Bucket, Fault, SECRET};
use crate::support::dataset::DataSet;

fn hub_of(endpoint: &str, token: Option<&str>) -> impl Fn() -> HubSource + Send + Sync + 'static {
    let (endpoint, token) = (endpoint.to_owned(), token.map(str::to_owned));
    move || HubSource {
        endpoint: endpoint.clone(),
        token: token.clone(),
        cache: None,
    }
}

fn objects(bucket: &Bucket, clock: SharedClock) -> Objects {
    Objects::new(
        clock,
        bucket.variables(),
        hub_of("http://127.0.0.1:9", None),
    )
}

fn clock() -> Arc<ManualClock> {
    let now: DateTime<Utc> = "2026-11-22T12:00:00Z".parse().unwrap();
    ManualClock::at(now)
}

fn address(text: &str) -> Address {
    Address::parse(text).unwrap()
}

/// Bytes that tell where they stand.
fn content(length: usize) -> Vec<u8> {
    (0..length)
        .map(|at| u8::try_from(at * 7 % 251).unwrap())
        .collect()
}

/// Each error of a text and everything below it, as it would be shown and logged.
fn told(error: &ObjectError) -> String {
    let told = format!("{error} {error:?}");
    assert!(!told.contains(SECRET), "{told}");
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
    let folder = address("s3://b/in");
    // A list, the first two requests for a range, and one in the middle.
    bucket.injure(
        Method::GET,
        "list-type=2",
        Fault::Status(503, "SlowDown", None),
        1,
    );
    let found = objects.folder(&folder, "in", true).unwrap();
    let keys: Vec<&str> = found.iter().map(|found| found.key.as_str()).collect();
    assert_eq!(keys, ["in/a.parquet", "in/deep/b.parquet"]);
    assert_eq!(clock.sleeps().len(), 1);
    assert!(objects.one(&address("s3://b/in")).unwrap().is_none());
    assert!(
        objects
            .one(&address("s3://b/in/a.parquet"))
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
async fn trouble_that_lasts_and_refusals_end_with_what_to_do() {
    let Some(bucket) = Bucket::start().await else {
        return;
    };
    bucket.put("a", content(100)).await;
    let clock = clock();
    let objects = objects(&bucket, clock.clone());
    let place = address("s3://b/a");
    let found = objects.one(&place).unwrap().unwrap();
    let read = || {
        let opened = objects.open(&place, &found).unwrap();
        let error = opened.read_at(0, &mut [0; 10]).unwrap_err();
        error.downcast::<ObjectError>().unwrap()
    };
    bucket.injure(Method::GET, "/b/a", Fault::Status(503, "SlowDown", None), 7);
    let error = read();
    assert!(error.is_passing());
    assert!(
        told(&error).contains("reach `s3://b/a`: status 503 (SlowDown), 7 times"),
        "{error}"
    );
    assert_eq!(bucket.waiting(), 0);
    bucket.injure(
        Method::GET,
        "/b/a",
        Fault::Status(503, "SlowDown", Some("86400")),
        1,
    );
    assert!(read().is_passing());
    bucket.injure(
        Method::GET,
        "/b/a",
        Fault::Status(403, "SignatureDoesNotMatch", None),
        1,
    );
    let error = read();
    assert!(matches!(error, ObjectError::Refused { .. }), "{error:?}");
    let said = told(&error);
    assert!(
        said.contains("status 403 (SignatureDoesNotMatch)")
            && said.contains("check the credentials")
    );
    // The object goes, and comes back as another one.
    bucket.remove("a").await;
    assert!(matches!(read(), ObjectError::Changed(_)));
    bucket.put("a", content(200)).await;
    assert!(matches!(read(), ObjectError::Changed(_)));
    let none = address("s3://nobucket/x");
    let error = objects.folder(&none, "x", true).unwrap_err();
    assert!(
        told(&error).contains("no such bucket (status 404 (NoSuchBucket))"),
        "{error}"
    );
    assert!(
        !bucket
            .seen()
            .iter()
            .any(|(_, path, _)| path.contains(SECRET))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn files_of_any_size_are_written_whole() {
    let Some(bucket) = Bucket::start().await else {
        return;
    };
    let objects = objects(&bucket, clock());
    let output = objects.output(&address("s3://b/out/")).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let lock = output.lock("x.lock", "somebody", "token").unwrap();
    for length in [0, 1_000, 20 << 20] {
        let path = folder.path().join("file");
        std::fs::write(&path, content(length)).unwrap();
        for (method, part) in [(Method::PUT, "file"), (Method::POST, "uploadId")] {
            bucket.injure(method, part, Fault::Status(503, "SlowDown", None), 1);
        }
        bucket.injure(Method::POST, "uploadId", Fault::LostAnswer, 1);
        output.put_file("file", &path, &lock).unwrap();
        assert!(bucket.get("out/file").await.unwrap() == content(length));
    }
    assert_eq!(bucket.waiting(), 0);
    drop(lock);
    // Nothing that was begun lies about.
    let begun = bucket.get("?uploads").await.unwrap();
    assert!(!String::from_utf8(begun).unwrap().contains("<Upload>"));
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
    let place = address("s3://b/out");
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
        told(&error).starts_with("process 1 on here works on it"),
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
    let output = objects.output(&address("s3://b/out")).unwrap();
    let note = r#"{"holder":"process 1 on here","token":"one","beat":3,"free":false}"#;
    bucket.put("out/s.lock", note).await;
    let take = || output.lock("s.lock", "process 2 on there", "two");
    // The store's clock counts, whatever ours says.
    bucket.let_pass(50);
    let error = take().err().unwrap();
    assert!(matches!(error, ObjectError::Held { .. }), "{error:?}");
    assert!(
        told(&error).contains("process 1 on here works on it, and was heard of 5"),
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
    bucket.be_deaf();
    let objects = objects(&bucket, clock());
    let output = objects.output(&address("s3://b/out")).unwrap();
    let error = output.lock("s.lock", "somebody", "one").err().unwrap();
    assert!(matches!(error, ObjectError::Unconditional(_)), "{error:?}");
    assert!(
        told(&error).contains("takes no conditional writes"),
        "{error}"
    );
    assert!(output.put("x", "1".into(), &Version::of_nothing()).is_ok());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_data_set_is_read_at_one_commit_and_its_token_goes_to_the_hub_alone() {
    const TOKEN: &str = "hf_aTokenThatNobodySees";
    let hub = DataSet::start(Some(TOKEN)).await;
    let file = content(5_000_000);
    hub.put("data/a.parquet", file.clone());
    hub.put("data/b.parquet", "b");
    hub.put("data/deep/c.parquet", "c");
    hub.put("readme.md", "r");
    let clock = clock();
    let of = |token| Objects::new(clock.clone(), [], hub_of(&hub.url, token));
    let place = address("hf://datasets/someone/things/data");
    let error = of(None).folder(&place, "data", true).unwrap_err();
    assert!(error.to_string().contains("set HF_TOKEN"), "{error}");
    let objects = of(Some(TOKEN));
    let found = objects.folder(&place, "data", true).unwrap();
    let keys: Vec<&str> = found.iter().map(|found| found.key.as_str()).collect();
    assert_eq!(
        keys,
        ["data/a.parquet", "data/b.parquet", "data/deep/c.parquet"]
    );
    assert_eq!(found[0].version, "hash of data/a.parquet");
    assert_eq!(objects.folder(&place, "data", false).unwrap().len(), 2);
    let one = objects.one(&address("hf://datasets/someone/things@main/data/a.parquet"));
    assert_eq!(one.unwrap().unwrap().size, 5_000_000);
    for (status, wait) in [(429, "11"), (503, "1"), (500, "1")] {
        hub.refuse(status, wait);
    }
    let opened = objects.open(&place, &found[0]).unwrap();
    let mut read = vec![0; file.len()];
    opened.read_at(0, &mut read).unwrap();
    assert!(read == file);
    assert!(clock.sleeps().contains(&Duration::from_secs(11)));
    let asked = hub.asked();
    for (host, path, authorization) in asked {
        let told = authorization.is_some_and(|told| told.contains(TOKEN));
        assert!(!told || host == "hub", "{host} {path}");
        assert!(
            !path.contains("main") || path.contains("/revision/"),
            "{path}"
        );
    }
    let error = objects.output(&place).err().unwrap();
    assert!(matches!(error, ObjectError::ReadOnly(_)));
    let error = of(Some(TOKEN)).folder(&address("hf://datasets/someone/others"), "", true);
    assert!(
        error
            .unwrap_err()
            .to_string()
            .contains("no such repository")
    );
}
