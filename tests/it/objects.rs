//! Object stores as they are, and as they are on a bad day: a real S3 behind a proxy that injures its answers, and a hub.

use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use axum::http::Method;
use chrono::{DateTime, Utc};
use parquet::data_type::{ByteArray, ByteArrayType};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;
use topicmill::clock::{ManualClock, SharedClock, SystemClock};
use topicmill::hub::HubSource;
use topicmill::objects::{Address, ObjectError, Objects};

use crate::support::bucket::{Bucket, Fault, SECRET};
use crate::support::dataset::DataSet;
use crate::support::engine::repository;
use crate::support::program::{Program, Ran, finished};

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
async fn trouble_that_lasts_and_refusals_end_with_what_to_do() {
    let Some(bucket) = Bucket::start().await else {
        return;
    };
    bucket.put("a", content(100)).await;
    let clock = clock();
    let objects = objects(&bucket, clock.clone());
    let place = address("s3://box/a");
    let found = objects.one(&place).unwrap().unwrap();
    let read = || {
        let opened = objects.open(&place, &found).unwrap();
        let error = opened.read_at(0, &mut [0; 10]).unwrap_err();
        error.downcast::<ObjectError>().unwrap()
    };
    bucket.injure(
        Method::GET,
        "/box/a",
        Fault::Status(503, "SlowDown", None),
        7,
    );
    let error = read();
    assert!(error.is_passing());
    assert!(
        told(&error).contains("reach `s3://box/a`: status 503 (SlowDown), 7 times"),
        "{error}"
    );
    assert_eq!(bucket.waiting(), 0);
    bucket.injure(
        Method::GET,
        "/box/a",
        Fault::Status(503, "SlowDown", Some("86400")),
        1,
    );
    assert!(read().is_passing());
    bucket.injure(
        Method::GET,
        "/box/a",
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

/// A Parquet file with texts.
fn table(rows: std::ops::Range<u32>) -> Vec<u8> {
    let schema = parse_message_type("message schema { required binary text (STRING); }").unwrap();
    let mut file = Vec::new();
    let mut writer =
        SerializedFileWriter::new(&mut file, Arc::new(schema), Arc::default()).unwrap();
    let texts = rows.map(|row| format!("{} {row}", "a roast chicken, a goal ".repeat(3)));
    let texts: Vec<ByteArray> = texts.map(|text| text.as_str().into()).collect();
    let mut group = writer.next_row_group().unwrap();
    let mut column = group.next_column().unwrap().unwrap();
    let typed = column.typed::<ByteArrayType>();
    typed.write_batch(&texts, None, None).unwrap();
    column.close().unwrap();
    group.close().unwrap();
    writer.close().unwrap();
    file
}

const LABELS: [&str; 4] = ["--label", "cooking", "--label", "football"];

fn scoring(program: &Program, bucket: &Bucket, more: &[&str]) -> Command {
    let words = [&["score"][..], more, &LABELS[..]].concat();
    let mut command = program.command(&words);
    command.envs(bucket.variables());
    command
}

fn score(program: &Program, bucket: &Bucket, more: &[&str]) -> Ran {
    finished(scoring(program, bucket, more).output().unwrap())
}

fn ok(program: &Program, bucket: &Bucket, more: &[&str]) -> Ran {
    let ran = score(program, bucket, more);
    assert_eq!(ran.code, 0, "{more:?}\n{}", ran.stderr);
    ran
}

const PART: &str = "part-00001-of-00001";

/// What a store or an address refuses ends with its code.
fn refusals(program: &Program, bucket: &Bucket) -> Vec<Ran> {
    bucket.injure(
        Method::GET,
        "/box",
        Fault::Status(403, "SignatureDoesNotMatch", None),
        1,
    );
    let refused = score(program, bucket, &["s3://box/in/", "s3://box/third/"]);
    assert_eq!(refused.code, 3, "{}", refused.stderr);
    assert!(
        refused.stderr.contains("check the credentials"),
        "{}",
        refused.stderr
    );
    let mut told = vec![refused];
    for (what, code) in [
        (["s3://box/in/*.csv", "s3://box/third/"], 2),
        (["s3://box/none", "s3://box/third/"], 2),
        (["s3://me:hunter2@box/in", "s3://box/third/"], 2),
        (["ftp://box/in", "x.parquet"], 2),
        (["in", "s3://box/file.parquet"], 2),
        (["in", "s3://me:hunter2@box/file.parquet"], 2),
        (["az://box/in.parquet?sv=1&sig=hunter2", "out/"], 2),
        (["in", "hf://datasets/a/b/out/"], 2),
    ] {
        let ran = score(program, bucket, &what);
        assert_eq!(ran.code, code, "{what:?} {}", ran.stderr);
        told.push(ran);
    }
    told
}

#[tokio::test(flavor = "multi_thread")]
async fn no_credential_of_a_store_is_printed_or_written() {
    let Some(bucket) = Bucket::start().await else {
        return;
    };
    let program = Program::new();
    for (name, rows) in [("a", 0..40), ("b", 40..70), ("deep/c", 70..100)] {
        std::fs::create_dir_all(program.folder.path().join("in/deep")).unwrap();
        let name = format!("in/{name}.parquet");
        program.write(&name, table(rows.clone()));
        bucket.put(&name, table(rows)).await;
    }
    bucket.put("in/_hidden/x.parquet", "no table").await;
    bucket.injure(Method::GET, "deep/c", Fault::Cut, 1);
    bucket.injure(
        Method::PUT,
        "out/part",
        Fault::Status(503, "SlowDown", Some("1")),
        1,
    );
    // The same rows from here and from there, in shards and in one.
    ok(&program, &bucket, &["in", "here/"]);
    let mut loud = scoring(&program, &bucket, &["s3://box/in", "s3://box/out/"]);
    let mut told = vec![finished(
        loud.env("TOPICMILL_LOG", "trace").output().unwrap(),
    )];
    assert_eq!(told[0].code, 0, "{}", told[0].stderr);
    let here = std::fs::read(program.folder.path().join(format!("here/{PART}.parquet"))).unwrap();
    assert!(bucket.get(&format!("out/{PART}.parquet")).await.unwrap() == here);
    for shard in ["1/2", "2/2"] {
        let more = [
            "s3://box/in/**/*.parquet",
            "s3://box/two/",
            "--shard",
            shard,
        ];
        told.push(ok(&program, &bucket, &more));
    }
    let check = ok(&program, &bucket, &["--check", "s3://box/two/"]);
    assert!(
        check
            .stdout
            .contains("2 of 2 shards are whole: 100 rows read"),
        "{}",
        check.stdout
    );
    let again = ok(&program, &bucket, &["s3://box/in", "s3://box/out/"]);
    assert!(
        again.stderr.contains("is whole already"),
        "{}",
        again.stderr
    );
    // One file, to a file of this machine.
    let one = ["s3://box/in/a.parquet", "one.parquet"];
    ok(&program, &bucket, &one);
    ok(&program, &bucket, &["in/a.parquet", "same.parquet"]);
    let of = |name: &str| std::fs::read(program.folder.path().join(name)).unwrap();
    assert!(of("one.parquet") == of("same.parquet"));
    let file = format!("file://{}/in/a.parquet", program.folder.path().display());
    ok(&program, &bucket, &[file.as_str(), "third.parquet"]);
    assert!(of("third.parquet") == of("same.parquet"));
    // What was fetched is not left, and a secret is nowhere.
    let names = std::fs::read_dir(program.folder.path()).unwrap();
    let names: Vec<String> = names
        .map(|name| name.unwrap().file_name().into_string().unwrap())
        .collect();
    assert!(
        !names.iter().any(|name| name.contains(".one.parquet")),
        "{names:?}"
    );
    told.extend([check, again]);
    told.extend(refusals(&program, &bucket));
    for ran in &told {
        for part in [SECRET, "hunter2"] {
            assert!(
                !ran.stderr.contains(part) && !ran.stdout.contains(part),
                "{}",
                ran.stderr
            );
        }
    }
    for key in bucket.keys().await {
        let content = bucket.get(&key).await.unwrap();
        let found = content
            .windows(SECRET.len())
            .any(|window| window == SECRET.as_bytes());
        assert!(!found, "{key}");
        let is_done = !key.contains(".ndjson") && !key.contains(".lock");
        assert!(is_done, "{key} is left");
    }
}

/// Starts a shard, and waits until rows that it scored are in the store.
async fn begun(program: &Program, bucket: &Bucket, more: &[&str]) -> std::process::Child {
    let mut command = scoring(program, bucket, more);
    let mut running = command
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let pieces = |keys: Vec<String>| keys.iter().filter(|key| key.contains(".ndjson.0")).count();
    let before = pieces(bucket.keys().await);
    while pieces(bucket.keys().await) <= before {
        assert!(running.try_wait().unwrap().is_none(), "it ended");
        SystemClock::shared().sleep(Duration::from_millis(20)).await;
    }
    running
}

fn signal(process: &std::process::Child, name: &str) {
    let sent = Command::new("kill")
        .args([name, &process.id().to_string()])
        .status();
    assert!(sent.unwrap().success());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shard_in_a_store_outlives_its_machine_and_its_late_holder() {
    let Some(bucket) = Bucket::start().await else {
        return;
    };
    let program = Program::new();
    bucket.put("in/a.parquet", table(0..9_000)).await;
    // Thousands of rows in a second, and seconds for all of them.
    let tiny = repository("tests/it/fixtures/models/tiny-bert-nli");
    let labels: Vec<String> = (0..3).map(|i| format!("subject {i}")).collect();
    let labels = labels.iter().flat_map(|label| ["--label", label]);
    let model = ["--model", tiny.to_str().unwrap()];
    let quick: Vec<&str> = model.into_iter().chain(labels).collect();
    let more = [&["s3://box/in/", "s3://box/out/"], &quick[..]].concat();
    let mut killed = begun(&program, &bucket, &more).await;
    let second = score(&program, &bucket, &more);
    assert_eq!(second.code, 75, "{}", second.stderr);
    let holder = format!("process {} on ", killed.id());
    assert!(second.stderr.contains(&holder), "{}", second.stderr);
    killed.kill().unwrap();
    killed.wait().unwrap();
    assert_eq!(score(&program, &bucket, &more).code, 75);
    // The store has heard nothing for a minute. Nothing of the first machine is left but what it wrote there.
    bucket.let_pass(65);
    let mut silent = begun(&program, &bucket, &more).await;
    signal(&silent, "-STOP");
    bucket.let_pass(65);
    let other = Program::new();
    let third = ok(&other, &bucket, &more);
    let resumed = third.stderr.split("resumed=").nth(1).unwrap_or_default();
    let resumed: String = resumed.chars().take_while(char::is_ascii_digit).collect();
    assert!(resumed.parse::<u64>().unwrap_or(0) > 0, "{}", third.stderr);
    let keys = bucket.keys().await;
    let written = bucket.get(&format!("out/{PART}.parquet")).await.unwrap();
    signal(&silent, "-CONT");
    let mut told = String::new();
    let mut stderr = silent.stderr.take().unwrap();
    std::io::Read::read_to_string(&mut stderr, &mut told).unwrap();
    assert_eq!(silent.wait().unwrap().code(), Some(75), "{told}");
    assert!(told.contains("another process has taken over"), "{told}");
    assert_eq!(bucket.keys().await, keys);
    assert!(bucket.get(&format!("out/{PART}.parquet")).await.unwrap() == written);
    let whole = [&["s3://box/in/", "whole/"], &quick[..]].concat();
    ok(&program, &bucket, &whole);
    let whole = program.folder.path().join(format!("whole/{PART}.parquet"));
    assert!(std::fs::read(whole).unwrap() == written, "other bytes");
}
