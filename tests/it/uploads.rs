//! `topicmill export` to an object store, interrupted: by a signal, by its death, by others who write there, by a purge.

use std::process::{Child, Stdio};
use std::time::Duration;

use axum::http::Method;
use serde_json::json;
use tokio_util::sync::CancellationToken;
use topicmill::clock::SystemClock;
use topicmill::hub::HubSource;
use topicmill::objects::{Address, ObjectError, Objects, Upload};

use crate::support::bucket::{Bucket, Fault};
use crate::support::engine::runtime_is_here;
use crate::support::postgres::{TestDatabase, databases};
use crate::support::program::{Program, Ran, finished};

const LABELS: &str = "name = \"two\"\nmode = \"single\"\n\
    [[topic]]\nslug = \"gaming\"\nlabel = \"video games\"\nsubreddits = [\"gaming\"]\n\
    [[topic]]\nslug = \"food\"\nlabel = \"food and cooking\"\nsubreddits = [\"food\"]\n";
const OBJECT: &str = "out/a.csv";
/// The object and not its lock.
const ITS_PATH: &str = "/out/a.csv$";

/// A store, and posts with labels to export there.
struct Scene {
    bucket: Bucket,
    program: Program,
    database: TestDatabase,
}

impl Scene {
    /// None where an object store or ONNX Runtime is not installed.
    async fn new(test: &str, database: TestDatabase) -> Option<Self> {
        if !runtime_is_here(test) {
            return None;
        }
        let scene = Self {
            bucket: Bucket::start().await?,
            program: Program::new(),
            database,
        };
        let posts = (0..20).map(|i| {
            let title = format!("how to roast a chicken {i}");
            let at = 1_700_000_000 + i * 3_600;
            json!({"id": format!("k{i:06}"), "title": title, "selftext": "", "subreddit": "food", "created_utc": at})
        });
        let posts: String = posts.map(|post| format!("{post}\n")).collect();
        let file = scene.program.write("posts.ndjson", posts);
        scene.ok(&["import", &file]);
        let file = scene.program.write("two.toml", LABELS);
        scene.ok(&["classify", "--pipeline", &file]);
        Some(scene)
    }

    fn run(&self, words: &[&str]) -> Ran {
        let words = [&["--database", self.database.url.as_str()], words].concat();
        let mut command = self.program.command(&words);
        finished(command.envs(self.bucket.variables()).output().unwrap())
    }

    fn ok(&self, words: &[&str]) -> Ran {
        let ran = self.run(words);
        assert_eq!(ran.code, 0, "{words:?}: {}", ran.stderr);
        ran
    }

    fn export(&self) -> Ran {
        self.run(&["export", "s3://box/out/a.csv"])
    }

    /// Starts an export whose upload meets a fault, and waits until it has met it.
    async fn uploading(&self, fault: Fault) -> Child {
        self.bucket.injure(Method::PUT, ITS_PATH, fault, 1);
        let words = [
            "--database",
            &self.database.url,
            "export",
            "s3://box/out/a.csv",
        ];
        let mut command = self.program.command(&words);
        command.envs(self.bucket.variables());
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
        while self.bucket.waiting() > 0 {
            assert!(child.try_wait().unwrap().is_none(), "it ended");
            SystemClock::shared().sleep(Duration::from_millis(10)).await;
        }
        child
    }

    async fn content(&self) -> String {
        String::from_utf8(self.bucket.get(OBJECT).await.unwrap()).unwrap()
    }
}

fn ended(child: Child) -> Ran {
    finished(child.wait_with_output().unwrap())
}

fn terminate(child: &Child) {
    let mut kill = std::process::Command::new("kill");
    let sent = kill.args(["-TERM", &child.id().to_string()]).status();
    assert!(sent.unwrap().success());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_signal_ends_an_upload_within_seconds() {
    let name = "a_signal_ends_an_upload_within_seconds";
    let Some(scene) = Scene::new(name, databases().swap_remove(0)).await else {
        return;
    };
    // A store that asks for a minute of patience, and one that says nothing more.
    for fault in [Fault::Status(503, "SlowDown", Some("60")), Fault::Silence] {
        let child = scene.uploading(fault.clone()).await;
        let clock = SystemClock::shared();
        let before = clock.elapsed();
        terminate(&child);
        let ran = ended(child);
        let taken = clock.elapsed().saturating_sub(before);
        assert_eq!(ran.code, 143, "{fault:?}: {}", ran.stderr);
        assert!(
            ran.stderr.contains("stopped while `s3://box/out/a.csv`"),
            "{}",
            ran.stderr
        );
        // Much less than the minute, also where the machine is busy.
        assert!(taken < Duration::from_secs(20), "{fault:?}: {taken:?}");
        assert_eq!(scene.bucket.keys().await, Vec::<String>::new());
    }
    // The lock is gone, too, so that nobody waits for it.
    let after = scene.export();
    assert_eq!(after.code, 0, "{}", after.stderr);
    assert_eq!(scene.bucket.keys().await, [OBJECT]);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upload_that_is_killed_leaves_nothing_at_the_address() {
    let name = "an_upload_that_is_killed_leaves_nothing_at_the_address";
    let Some(scene) = Scene::new(name, databases().swap_remove(0)).await else {
        return;
    };
    let mut child = scene.uploading(Fault::Silence).await;
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(scene.bucket.keys().await, ["out/a.csv.lock"]);
    let soon = scene.export();
    assert_eq!(soon.code, 75, "{}", soon.stderr);
    scene.bucket.let_pass(65);
    let later = scene.export();
    assert_eq!(later.code, 0, "{}", later.stderr);
    assert_eq!(scene.bucket.keys().await, [OBJECT]);
}

#[tokio::test(flavor = "multi_thread")]
async fn of_two_exports_to_an_address_one_writes_it_and_strangers_keep_what_they_put_there() {
    let name = "of_two_exports_to_an_address_one_writes_it";
    let Some(scene) = Scene::new(name, databases().swap_remove(0)).await else {
        return;
    };
    let first = scene
        .uploading(Fault::Status(503, "SlowDown", Some("5")))
        .await;
    let second = scene.export();
    assert_eq!(second.code, 75, "{}", second.stderr);
    assert!(
        second.stderr.contains("the export of "),
        "{}",
        second.stderr
    );
    let first = ended(first);
    assert_eq!(first.code, 0, "{}", first.stderr);
    assert_eq!(scene.content().await.lines().count(), 21);
    assert_eq!(scene.bucket.keys().await, [OBJECT]);
    // Whoever is not topicmill asks for no lock.
    scene.bucket.remove(OBJECT).await;
    let third = scene
        .uploading(Fault::Status(503, "SlowDown", Some("1")))
        .await;
    scene.bucket.put(OBJECT, "theirs").await;
    let third = ended(third);
    assert_eq!(third.code, 2, "{}", third.stderr);
    assert!(third.stderr.contains("--overwrite"), "{}", third.stderr);
    assert_eq!(scene.content().await, "theirs");
    assert_eq!(scene.bucket.keys().await, [OBJECT]);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_export_says_that_a_purge_came_meanwhile() {
    for database in databases() {
        let name = "an_export_says_that_a_purge_came_meanwhile";
        let Some(scene) = Scene::new(name, database).await else {
            return;
        };
        // Between the moment of its rows and the moment when somebody can read them.
        let child = scene
            .uploading(Fault::Status(503, "SlowDown", Some("10")))
            .await;
        let ids = scene.program.write("ids.txt", "t3_k000003\nt3_k000004\n");
        scene.ok(&["purge", "--ids", &ids]);
        let ran = ended(child);
        assert_eq!(ran.code, 0, "{}", ran.stderr);
        let warned = |ran: &Ran| ran.stderr.contains("were purged while the export ran");
        assert!(
            warned(&ran) && ran.stderr.contains("posts=2"),
            "{}",
            ran.stderr
        );
        assert!(scene.content().await.contains("t3_k000003"));
        // What it says to do is enough.
        let again = scene.ok(&["export", "s3://box/out/a.csv", "--overwrite", "--json"]);
        assert!(!warned(&again), "{}", again.stderr);
        assert!(
            again.stdout.contains("\"purged_meanwhile\": 0"),
            "{}",
            again.stdout
        );
        assert!(!scene.content().await.contains("t3_k000003"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_large_upload_is_taken_back_when_it_is_stopped_or_comes_too_late() {
    let Some(bucket) = Bucket::start().await else {
        return;
    };
    let hub = || HubSource {
        endpoint: "http://127.0.0.1:9".to_owned(),
        token: None,
        cache: None,
    };
    let objects = Objects::new(SystemClock::shared(), bucket.variables(), hub);
    let output = objects
        .output(&Address::parse("s3://box/out/").unwrap())
        .unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("file");
    std::fs::write(&path, vec![7; 20 << 20]).unwrap();
    let lock = output.lock("x.lock", "somebody", "token").unwrap();
    let upload = Upload {
        replaces: false,
        stop: CancellationToken::new(),
    };
    let begun = async || {
        let begun = bucket.get("?uploads").await.unwrap();
        String::from_utf8(begun).unwrap().contains("<Upload>")
    };
    // The third part gets no answer.
    bucket.injure(Method::PUT, "partNumber=3", Fault::Silence, 1);
    let (stop, sent) = (upload.stop.clone(), bucket.waiting());
    assert_eq!(sent, 1);
    let stopped = std::thread::scope(|scope| {
        let put = scope.spawn(|| output.put_file("file", &path, &lock, &upload));
        while bucket.waiting() > 0 {
            std::thread::yield_now();
        }
        stop.cancel();
        put.join().unwrap()
    });
    assert!(
        matches!(stopped, Err(ObjectError::Stopped(_))),
        "{stopped:?}"
    );
    assert!(!begun().await);
    // Somebody else is there when the last part has come.
    bucket.put("out/file", "theirs").await;
    let upload = Upload {
        stop: CancellationToken::new(),
        ..upload
    };
    let late = output.put_file("file", &path, &lock, &upload);
    assert!(matches!(late, Err(ObjectError::Exists(_))), "{late:?}");
    assert!(!begun().await);
    assert_eq!(bucket.get("out/file").await.unwrap(), b"theirs");
    output
        .put_file("file", &path, &lock, &Upload::replacing())
        .unwrap();
    assert_eq!(bucket.get("out/file").await.unwrap().len(), 20 << 20);
}
