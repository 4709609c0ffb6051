//! Every reader against inputs that somebody broke: it may refuse them, and must neither panic, hang, take memory
//! without bounds, nor let through what the database does not hold.
//!
//! Each runs for a moment with the other tests. For longer, with inputs of its own each time:
//!
//! ```sh
//! TOPICMILL_FUZZ_SECS=600 cargo test --test it -- --nocapture --test-threads 1 attacks::fuzz
//! ```
//!
//! What was found lies in `tests/it/fixtures/fuzz`, a folder a reader, and is read in every run.

use std::io::Cursor;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderName, HeaderValue, StatusCode};
use axum::response::Response;
use parquet::basic::{Compression, GzipLevel, ZstdLevel};
use parquet::file::properties::{WriterProperties, WriterVersion};
use serde_json::json;
use topicmill::clock::ManualClock;
use topicmill::domain::{Fullname, Listing, Post, SourceKind};
use topicmill::pipeline_file::{Pipeline, SIXTEEN_TOPICS};
use topicmill::source::arctic_shift::ArcticShift;
use topicmill::source::file::dump::{self, FileFormat, Reading};
use topicmill::source::file::filter::Filter;
use topicmill::source::listing::parse_listing;
use topicmill::source::page::Way;
use topicmill::source::reddit::Reddit;
use topicmill::tables::csv::Csv;
use topicmill::tables::parquet::Parquet;
use topicmill::tables::{Rows, TableError, bytes};

use super::readers::parquet;
use crate::support::engine::repository;
use crate::support::mutate::{Mutator, fuzz};
use crate::support::replay::Exchange;
use crate::support::{arctic_shift, reddit};

/// What was found of a reader.
fn found(reader: &str) -> Vec<Vec<u8>> {
    let folder = repository("tests/it/fixtures/fuzz").join(reader);
    let Ok(entries) = std::fs::read_dir(folder) else {
        return Vec::new();
    };
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths
        .iter()
        .map(|path| std::fs::read(path).unwrap())
        .collect()
}

/// Seeds made here and what was found, which is checked once as it is.
fn corpus(reader: &str, made: Vec<Vec<u8>>, mut check: impl FnMut(&[u8])) -> Vec<Vec<u8>> {
    let mut all = made;
    all.extend(found(reader));
    for seed in &all {
        check(seed);
    }
    all
}

/// What the store takes for granted of every post, wherever it comes from.
fn is_sound(post: &Post) {
    let id = post.fullname.as_str().strip_prefix("t3_").unwrap();
    assert!((1..=16).contains(&id.len()) && !id.starts_with('0'), "{id}");
    assert!(
        id.bytes()
            .all(|b| b.is_ascii_digit() || b.is_ascii_lowercase())
    );
    let again: Fullname = post.fullname.as_str().parse().unwrap();
    assert_eq!(again, post.fullname);
    let optional = [&post.url, &post.permalink, &post.author, &post.flair];
    let texts = optional.into_iter().flatten();
    for text in texts.chain([&post.title, &post.selftext, &post.subreddit]) {
        assert!(!text.contains('\0') && text.len() <= 64 << 20);
    }
    assert!(!(post.title.trim().is_empty() && post.selftext.trim().is_empty()));
    let secs = post.created_at.as_datetime().timestamp();
    assert!((0..=253_402_300_799).contains(&secs));
    assert!(
        post.upvote_ratio
            .is_none_or(|ratio| (0.0..=1.0).contains(&ratio))
    );
}

/// Rows as dumps of several years, tables and pages have them.
fn rows() -> Vec<String> {
    [
        json!({"id": "aa1", "subreddit": "food", "title": "Rye", "selftext": "My starter died.",
            "created_utc": 1_700_000_000, "score": 3, "upvote_ratio": 0.9, "num_comments": 2,
            "author": "me", "is_self": true, "permalink": "/r/food/comments/aa1/rye/"}),
        json!({"name": "t3_bb2", "id": "bb2", "subreddit": "music", "title": "caf\u{e9} \u{1f600}", "url":
            "https://a.example/", "created_utc": "1700000001", "over_18": "true", "topic": "music",
            "_meta": {"removal_type": null, "retrieved_2nd_on": 1_700_200_000}, "retrieved_on": 1_700_000_020.5}),
        json!({"kind": "t3", "data": {"name": "t3_cc3", "subreddit": "food", "title": "A crosspost",
            "selftext": "", "created_utc": 1_700_000_002.0, "stickied": true, "link_flair_text": "x",
            "crosspost_parent_list": [{"selftext": "of its parent", "name": "t3_dd4"}]}}),
        json!({"body": "a comment", "link_id": "t3_aa1", "id": "ee5", "created_utc": 1}),
    ]
    .iter()
    .map(ToString::to_string)
    .collect()
}

fn listing_seeds() -> Vec<Vec<u8>> {
    let children: Vec<String> = rows();
    let listing = format!(
        "{{\"kind\":\"Listing\",\"data\":{{\"after\":\"t3_cc3\",\"children\":[{}]}}}}",
        children.join(",")
    );
    let lone = listing.replace("Rye", "R\\ud83d");
    let page = format!("[{listing},{listing}]");
    [listing, lone, page].map(String::into_bytes).to_vec()
}

#[test]
fn listings() {
    let check = |bytes: &[u8]| {
        if let Ok(page) = parse_listing(bytes, SourceKind::Reddit) {
            page.posts.iter().for_each(is_sound);
            assert!(page.after.is_none_or(|after| !after.contains('\0')));
        }
    };
    let seeds = corpus("listings", listing_seeds(), check);
    fuzz("listings", 3_000, |mutator| mutator.broken(&seeds), check);
}

/// Reads a file to its end as an import does.
fn read_whole(path: &Path, format: FileFormat, filter: &Filter) {
    let reading = Reading {
        format,
        filter: filter.clone(),
        columns: Vec::new(),
    };
    let Ok(mut blocks) = dump::blocks(path, &reading) else {
        return;
    };
    let (mut before, mut ended) = (0, false);
    while !ended {
        let block = blocks.next_block();
        for record in &block.records {
            is_sound(&record.post);
            let topic = record.topic.as_ref();
            assert!(topic.is_none_or(|topic| !topic.contains('\0')));
        }
        assert!(block.position.bytes >= before);
        before = block.position.bytes;
        ended = block.end.is_some();
    }
}

/// Attacks the reader of files of a format.
fn files(name: &str, format: FileFormat, times: u64, seeds: Vec<Vec<u8>>) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("file");
    let all = Filter::default();
    let secs = |secs| topicmill::domain::Timestamp::from_epoch_secs(secs);
    let some = Filter::new(Some(["food"]), secs(1_600_000_000), secs(1_700_000_002));
    let check = |bytes: &[u8]| {
        std::fs::write(&path, bytes).unwrap();
        read_whole(&path, format, &all);
        if format == FileFormat::Dump {
            read_whole(&path, format, &some);
        }
    };
    let seeds = corpus(name, seeds, check);
    let attack = |mutator: &mut Mutator| match format {
        FileFormat::Parquet => mutator.overwritten(&seeds),
        _ => mutator.broken(&seeds),
    };
    fuzz(name, times, attack, check);
}

#[test]
fn dumps() {
    let lines = rows().join("\n");
    let packed = |level| zstd::encode_all(lines.as_bytes(), level).unwrap();
    let mut two = packed(3);
    two.extend(packed(19));
    let seeds = vec![lines.clone().into_bytes(), packed(1), two];
    files("dumps", FileFormat::Dump, 1_500, seeds);
}

#[test]
fn csv_tables() {
    let table = "\u{feff}id,title,subreddit,created_utc,score,over_18,topic,selftext\n\
        a1,One,food,1700000000,3,False,food,text\n\
        a2,\"Two, and\nmore\",food,2023-11-14 22:13:20,,,,\"a \"\"quote\"\"\"\n\
        7,Three,food,2023-11-14T22:13:20+01:00,-4,yes,music,\n";
    files(
        "csv",
        FileFormat::Csv,
        2_000,
        vec![table.as_bytes().to_vec()],
    );
}

#[test]
fn parquet_tables() {
    let titles: Vec<String> = (0..40).map(|i| format!("Title {}", i % 7)).collect();
    let titles: Vec<&str> = titles.iter().map(String::as_str).collect();
    let mut seeds = vec![std::fs::read(repository("tests/it/fixtures/posts.parquet")).unwrap()];
    for codec in [
        Compression::UNCOMPRESSED,
        Compression::SNAPPY,
        Compression::GZIP(GzipLevel::default()),
        Compression::LZ4_RAW,
        Compression::ZSTD(ZstdLevel::default()),
    ] {
        for version in [WriterVersion::PARQUET_1_0, WriterVersion::PARQUET_2_0] {
            for dictionary in [true, false] {
                let written = WriterProperties::builder()
                    .set_compression(codec)
                    .set_writer_version(version)
                    .set_dictionary_enabled(dictionary)
                    .set_data_page_row_count_limit(16)
                    .set_write_batch_size(8);
                seeds.push(parquet(&titles, written));
            }
        }
    }
    files("parquet", FileFormat::Parquet, 1_000, seeds);
}

/// Reads a table to its end as `score` does.
fn read_rows(mut rows: impl Rows) {
    let mut json = String::new();
    while let Ok(Some(row)) = rows.next_row() {
        assert!(row.line > 0);
        for (_, cell) in &row.cells {
            json.clear();
            cell.write_json(&mut json);
            assert!(!json.contains('\n'), "{json}");
        }
    }
}

#[test]
fn tables_that_are_scored() {
    let rows = "\u{feff}id;title;\"body\"\n1;\"One; and\nmore\";x\n2;Two\n3;caf\u{e9};\"a \"\"quote\"\"\"\n";
    let utf16: Vec<u8> = rows.encode_utf16().flat_map(u16::to_le_bytes).collect();
    let packed = zstd::encode_all(rows.as_bytes(), 1).unwrap();
    let check = |bytes: &[u8]| {
        let text = bytes::text(Box::new(Cursor::new(bytes.to_vec())));
        if let Ok(Ok(rows)) = text.map(|text| Csv::new(text, None)) {
            read_rows(rows);
        }
    };
    let seeds = vec![rows.as_bytes().to_vec(), utf16, packed];
    let seeds = corpus("csv", seeds, check);
    fuzz("tables", 2_000, |mutator| mutator.broken(&seeds), check);

    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("file");
    let check = |bytes: &[u8]| {
        std::fs::write(&path, bytes).unwrap();
        let file = std::fs::File::open(&path).unwrap();
        let all = |names: &[Arc<str>]| Ok::<_, TableError>((0..names.len()).collect());
        if let Ok(rows) = Parquet::new(file, all) {
            read_rows(rows);
        }
    };
    let typed = std::fs::read(repository("tests/it/fixtures/typed.parquet")).unwrap();
    let seeds = corpus("parquet", vec![typed], check);
    fuzz("typed", 1_000, |mutator| mutator.overwritten(&seeds), check);
}

#[test]
fn pipeline_files() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("pipeline.toml");
    let check = |bytes: &[u8]| {
        std::fs::write(&path, bytes).unwrap();
        if let Ok(pipeline) = Pipeline::load(Some(&path), Listing::Hot, 100) {
            pipeline.label_set.validate().unwrap();
            for topic in &pipeline.topics {
                assert!((1..=1_000).contains(&topic.limit));
            }
            for read in pipeline.reads() {
                assert!((1..=1_000).contains(&read.limit));
            }
        }
    };
    let short = "name = \"two\"\nmode = \"multi\"\nthreshold = 0.5\ntemperature = 1.5\n\
        hypothesis_template = \"About {}.\"\n[[topic]]\nslug = \"a\"\nlabel = \"A\"\n\
        subreddits = [\"aa\"]\nlisting = \"new\"\nlimit = 7\ndescriptions = [\"x\"]\n";
    let all = "labels = [\"a b\", \"c\"]\n[[topic]]\nlabel = \"a\"\nsubreddits = [\"aa\", \"bb\"]\n\
        read = \"all\"\nshare = [2, 1]\n";
    let made = [SIXTEEN_TOPICS, short, all].map(|text| text.as_bytes().to_vec());
    let seeds = corpus("pipelines", made.to_vec(), check);
    fuzz("pipelines", 1_000, |mutator| mutator.broken(&seeds), check);
}

#[test]
fn settings_files() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("topicmill.toml");
    let check = |bytes: &[u8]| {
        std::fs::write(&path, bytes).unwrap();
        match topicmill::config::load(Some(&path), [], &[]) {
            Ok(loaded) => assert!(loaded.values.contains_key("database.url")),
            // A message never quotes a line: it may hold a secret.
            // But the name of an unknown setting, which a broken line may have made of one.
            Err(error) => {
                let text = error.to_string();
                let named = text.starts_with("unknown setting");
                assert!(named || !text.contains("hush0secret"), "{text}");
            }
        }
    };
    let short = "[reddit]\nclient_secret = \"hush0secret\"\npassword = 'hush0secret'\n\
        [database]\nurl = \"sqlite:x.db\"\n";
    let made = [topicmill::config::DEFAULTS, short].map(|text| text.as_bytes().to_vec());
    let seeds = corpus("settings", made.to_vec(), check);
    fuzz("settings", 500, |mutator| mutator.broken(&seeds), check);
}

/// An answer over HTTP.
#[derive(Clone, Default)]
struct Scripted {
    status: u16,
    headers: Vec<(String, Vec<u8>)>,
    body: Vec<u8>,
}

/// As bytes: status, a line a header, a blank line, body.
fn as_bytes(answer: &Scripted) -> Vec<u8> {
    let mut bytes = format!("{}\n", answer.status).into_bytes();
    for (name, value) in &answer.headers {
        bytes.extend(format!("{name}: ").bytes().chain(value.iter().copied()));
        bytes.push(b'\n');
    }
    bytes.push(b'\n');
    bytes.extend(&answer.body);
    bytes
}

fn from_bytes(bytes: &[u8]) -> Scripted {
    let end = bytes.windows(2).position(|two| two == b"\n\n");
    let (head, body) = match end {
        Some(end) => (&bytes[..end], &bytes[end + 2..]),
        None => (bytes, &[][..]),
    };
    let mut lines = head.split(|byte| *byte == b'\n');
    let status = lines.next().unwrap_or_default();
    let status = std::str::from_utf8(status).ok();
    let headers = lines.filter_map(|line| {
        let at = line.windows(2).position(|two| two == b": ")?;
        Some((
            String::from_utf8(line[..at].to_vec()).ok()?,
            line[at + 2..].to_vec(),
        ))
    });
    Scripted {
        status: status.and_then(|status| status.parse().ok()).unwrap_or(200),
        headers: headers.collect(),
        body: body.to_vec(),
    }
}

type Next = Arc<Mutex<Scripted>>;

async fn answer(State(next): State<Next>, request: Request) -> Response {
    let next = next.lock().unwrap().clone();
    // The other half of an exchange with Reddit is in order.
    let for_token = request.uri().path().ends_with("/api/v1/access_token");
    if for_token && next.headers.iter().all(|(name, _)| name != "x-for-token") {
        return Response::new(Body::from(
            "{\"access_token\": \"t\", \"expires_in\": 3600}",
        ));
    }
    let mut answer = Response::new(Body::from(next.body));
    // 1xx is no answer yet.
    let status = StatusCode::from_u16(next.status).ok();
    *answer.status_mut() = status
        .filter(|s| s.as_u16() >= 200)
        .unwrap_or(StatusCode::OK);
    for (name, value) in next.headers {
        let framing = ["content-length", "transfer-encoding", "connection"];
        let name = name.to_ascii_lowercase();
        let (parsed, value) = (HeaderName::try_from(&name), HeaderValue::from_bytes(&value));
        if let (Ok(parsed), Ok(value)) = (parsed, value)
            && !framing.contains(&name.as_str())
        {
            answer.headers_mut().append(parsed, value);
        }
    }
    answer
}

/// A server that answers with what is scripted next.
async fn server() -> (String, Next) {
    let next = Next::default();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let router = Router::new().fallback(answer).with_state(next.clone());
    tokio::spawn(axum::serve(listener, router).into_future());
    (url, next)
}

fn answers(exchanges: &str) -> Vec<Vec<u8>> {
    let text = std::fs::read_to_string(repository(exchanges)).unwrap();
    let answer = |line: &str| {
        let exchange: Exchange = serde_json::from_str(line).unwrap();
        let mut headers: Vec<_> = exchange
            .headers
            .iter()
            .filter_map(|(name, value)| Some((name.clone(), value.as_str()?.as_bytes().to_vec())))
            .collect();
        if exchange.url.contains("/api/v1/access_token") {
            headers.push(("x-for-token".into(), b"1".to_vec()));
        }
        as_bytes(&Scripted {
            status: exchange.status,
            headers,
            body: exchange.body.into_bytes(),
        })
    };
    text.lines().map(answer).collect()
}

/// Waits are bounded by the settings, whatever an answer asks for.
fn waits_are_bounded(clock: &ManualClock) {
    let sleeps = clock.sleeps();
    assert!(sleeps.len() < 50, "{}", sleeps.len());
    assert!(sleeps.iter().all(|wait| *wait <= Duration::from_mins(2)));
}

#[test]
fn answers_of_reddit() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let (url, next) = runtime.block_on(server());
    let start = chrono::DateTime::from_timestamp(1_790_000_000, 0).unwrap();
    let check = |bytes: &[u8]| {
        *next.lock().unwrap() = from_bytes(bytes);
        let clock = ManualClock::at(start);
        let reddit = Reddit::new(reddit::settings(&url), SourceKind::Reddit, clock.clone());
        let reddit = reddit.unwrap();
        runtime.block_on(async {
            if let Ok(page) = reddit.listing_page("food", Listing::New, 100, None).await {
                page.posts.iter().for_each(is_sound);
            }
            drop(reddit.info(&["t3_a".parse().unwrap()]).await);
        });
        waits_are_bounded(&clock);
    };
    let mut made = answers("tests/it/fixtures/exchanges.ndjson");
    made.extend(listing_seeds().into_iter().map(|body| {
        as_bytes(&Scripted {
            status: 200,
            headers: vec![
                ("x-ratelimit-remaining".into(), b"3.0".to_vec()),
                ("x-ratelimit-used".into(), b"7".to_vec()),
                ("x-ratelimit-reset".into(), b"37".to_vec()),
                ("retry-after".into(), b"5".to_vec()),
            ],
            body,
        })
    }));
    let seeds = corpus("reddit", made, check);
    fuzz("reddit", 300, |mutator| mutator.broken(&seeds), check);
}

#[test]
fn answers_of_the_archive() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let (url, next) = runtime.block_on(server());
    let start = chrono::DateTime::from_timestamp(1_790_000_000, 0).unwrap();
    let check = |bytes: &[u8]| {
        *next.lock().unwrap() = from_bytes(bytes);
        let clock = ManualClock::at(start);
        let archive = ArcticShift::new(&arctic_shift::settings(&url), clock.clone()).unwrap();
        let page = archive.page("food", Way::OldestFirst, None, 100);
        if let Ok(page) = runtime.block_on(page) {
            page.posts.iter().for_each(is_sound);
            if let Some(ends_at) = page.ends_at {
                let secs = ends_at.as_datetime().timestamp();
                assert!((0..=253_402_300_799).contains(&secs));
            }
        }
        waits_are_bounded(&clock);
    };
    let data = format!("{{\"data\":[{}]}}", rows().join(","));
    let answer = |status, headers: &[(&str, &str)], body: &str| {
        let header = |(name, value): &(&str, &str)| ((*name).to_owned(), value.as_bytes().to_vec());
        as_bytes(&Scripted {
            status,
            headers: headers.iter().map(header).collect(),
            body: body.as_bytes().to_vec(),
        })
    };
    let quota = [
        ("x-ratelimit-remaining", "0"),
        ("x-ratelimit-reset", "1790000060500"),
    ];
    let made = vec![
        answer(200, &quota, &data),
        answer(200, &[], "{\"data\":[],\"error\":null}"),
        answer(
            422,
            &[("retry-after", "7")],
            "{\"data\":null,\"error\":\"Timeout. Maybe slow down a bit\"}",
        ),
        answer(429, &[("retry-after", "Thu, 01 Jan 2099 00:00:09 GMT")], ""),
        answer(503, &[], "<html>"),
    ];
    let seeds = corpus("arctic-shift", made, check);
    fuzz("arctic-shift", 300, |mutator| mutator.broken(&seeds), check);
}
