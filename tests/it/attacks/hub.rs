//! Attacks on `model pull`: hostile listings, redirects and files from a hub.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use futures_util::{StreamExt, stream};
use serde_json::json;

use crate::support::engine::{files_below, repository};
use crate::support::hub::{COMMIT, git_blob_id};
use crate::support::program::{Program, RunOutput, finished};

const EXPORTED: &str = "tests/it/fixtures/models/tiny-bart-mnli";
const MADE: &str = "tests/it/fixtures/models/tiny-bart-made";

struct SeenRequest {
    path: String,
    authorization: Option<String>,
}

/// A server with scripted responses.
struct Server {
    url: String,
    seen: Arc<Mutex<Vec<SeenRequest>>>,
}

impl Server {
    async fn start(answer: impl Fn(&str) -> Response + Send + Sync + 'static) -> Self {
        let (seen, answer) = (Arc::<Mutex<Vec<_>>>::default(), Arc::new(answer));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let noted = Arc::clone(&seen);
        let router = Router::new().fallback(move |request: Request| {
            let path = request.uri().path().trim_start_matches('/').to_owned();
            let authorization = request.headers().get(header::AUTHORIZATION);
            let authorization = authorization.map(|value| value.to_str().unwrap().to_owned());
            let answered = answer(&path);
            noted.lock().unwrap().push(SeenRequest {
                path,
                authorization,
            });
            async move { answered }
        });
        tokio::spawn(async move { axum::serve(listener, router).await });
        Self { url, seen }
    }

    /// Returns the authorization header of each request whose path ends with these words.
    fn authorizations(&self, path: &str) -> Vec<Option<String>> {
        let seen = self.seen.lock().unwrap();
        let of_path = seen.iter().filter(|request| request.path.ends_with(path));
        of_path
            .map(|request| request.authorization.clone())
            .collect()
    }
}

fn redirect(to: &str) -> Response {
    (StatusCode::FOUND, [(header::LOCATION, to.to_owned())]).into_response()
}

/// Returns the names and contents of a folder's files.
fn files_of(folder: &str) -> Vec<(String, Vec<u8>)> {
    ["", "onnx"]
        .iter()
        .filter_map(|below| fs::read_dir(repository(folder).join(below)).ok())
        .flatten()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.is_file())
        .map(|path| {
            let name = path.strip_prefix(repository(folder)).unwrap();
            (name.display().to_string(), fs::read(&path).unwrap())
        })
        .collect()
}

fn listing(files: &[(String, Vec<u8>)]) -> serde_json::Value {
    let siblings = files.iter().map(
        |(name, bytes)| json!({"rfilename": name, "size": bytes.len(), "blobId": git_blob_id(bytes)}),
    );
    json!({"sha": COMMIT, "siblings": siblings.collect::<Vec<_>>()})
}

/// Returns the responses of a hub with one repository. A file is matched by the end of the requested path.
fn hub_of(files: Vec<(String, Vec<u8>)>) -> impl Fn(&str) -> Response + Send + Sync + 'static {
    move |path| {
        if path.starts_with("api/") {
            return axum::Json(listing(&files)).into_response();
        }
        let found = files
            .iter()
            .find(|(name, _)| path.ends_with(name.rsplit('/').next().unwrap()));
        match found {
            Some((_, bytes)) => bytes.clone().into_response(),
            None => StatusCode::NOT_FOUND.into_response(),
        }
    }
}

/// Returns the folder in which `model pull` collects the files of the model.
fn partial_folder(program: &Program) -> PathBuf {
    let models = program.path("in/here/models");
    models.join(format!("tiny.{}.partial", &COMMIT[..12]))
}

/// Runs `model pull` in `in/here` below the program's folder, so that the test sees files written above `in/here`.
async fn pulled(program: &Program, endpoint: &str, token: Option<&str>) -> RunOutput {
    let here = program.path("in/here");
    fs::create_dir_all(&here).unwrap();
    let mut command = program.command("model pull someone/tiny -vv");
    command
        .current_dir(here)
        .env("HF_ENDPOINT", endpoint)
        .env("HF_HOME", program.path("hf"))
        .env_remove("HF_TOKEN");
    if let Some(token) = token {
        command.env("HF_TOKEN", token);
    }
    let output = tokio::task::spawn_blocking(move || command.output().unwrap());
    finished(output.await.unwrap())
}

/// Returns every file below a folder, with its content.
fn everything(folder: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let with_content = |path: PathBuf| {
        let bytes = fs::read(&path).unwrap_or_default();
        (path, bytes)
    };
    files_below(folder).into_iter().map(with_content).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hub_listing_writes_nothing_outside_the_model_folder() {
    let program = Program::new();
    let victim = program.path("victim");
    fs::write(&victim, "mine").unwrap();
    let absolute = format!("model.onnx_data{}", victim.display());
    let long = format!("model.onnx_data{}", "x".repeat(300));
    for name in [
        "model.onnx_data/../../../../../victim",
        "model.onnx_data/../../../victim",
        "model.onnx_data\\..\\..\\victim",
        "model.onnx_data/x",
        "model.onnx_data\0",
        "model.onnx_data%2f..%2f..%2fvictim",
        &absolute,
        &long,
    ] {
        let mut files = files_of(EXPORTED);
        for (name, _) in &mut files {
            *name = name.replace("onnx/", "");
        }
        files.push((name.to_owned(), b"harm".to_vec()));
        let hub = Server::start(hub_of(files)).await;
        let models = program.path("in/here/models");
        let outside = || {
            let mut files = everything(program.folder.path());
            files.retain(|(path, _)| !path.starts_with(&models));
            files
        };
        let before = outside();
        let ran = pulled(&program, &hub.url, None).await;
        ran.expect_exit(5, "the hub's list");
        assert!(!models.join("tiny").exists());
        assert!(outside() == before, "{name}");
        assert_eq!(fs::read(&victim).unwrap(), b"mine");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hub_listing_cannot_overwrite_trusted_files() {
    for ours in [".hashes.toml", "Cpu-FP32.onnx"] {
        let program = Program::new();
        let mut files = files_of(MADE);
        for (name, bytes) in &mut files {
            if name == "manifest.toml" {
                let text = String::from_utf8(bytes.clone()).unwrap();
                *bytes = text
                    .replacen("data = []", &format!("data = [\"{ours}\"]"), 1)
                    .into();
            }
        }
        files.push((ours.to_owned(), b"harm".to_vec()));
        let hub = Server::start(hub_of(files)).await;
        let ran = pulled(&program, &hub.url, None).await;
        ran.expect_exit(5, ours);
        let found = everything(program.folder.path());
        assert!(found.iter().all(|(_, bytes)| bytes != b"harm"), "{ours}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn existing_symlinks_are_not_followed() {
    use std::os::unix::fs::symlink;
    let hub = Server::start(hub_of(files_of(EXPORTED))).await;
    for link in ["", "config.json", "onnx", "onnx/model.onnx"] {
        let program = Program::new();
        let elsewhere = program.path("elsewhere");
        fs::create_dir(&elsewhere).unwrap();
        let victim = elsewhere.join("victim");
        fs::write(&victim, "mine").unwrap();
        // `components` leaves out the slash after a joined empty name.
        let from: PathBuf = partial_folder(&program).join(link).components().collect();
        fs::create_dir_all(from.parent().unwrap()).unwrap();
        let is_file = link.contains('.');
        symlink(if is_file { &victim } else { &elsewhere }, from).unwrap();
        let ran = pulled(&program, &hub.url, None).await;
        // The link is replaced.
        assert_eq!(ran.code, 0, "{link}: {}", ran.stderr);
        let untouched = [(victim, b"mine".to_vec())];
        assert_eq!(everything(&elsewhere), untouched, "{link}");
    }
    // A symlink in place of the final folder is not followed either, dangling or not.
    let program = Program::new();
    let models = program.path("in/here/models");
    fs::create_dir_all(&models).unwrap();
    symlink("/nowhere", models.join("tiny")).unwrap();
    pulled(&program, &hub.url, None).await.expect_code(2);
}

#[tokio::test(flavor = "multi_thread")]
async fn files_in_the_partial_folder_do_not_enter_the_model() {
    let files = files_of(EXPORTED);
    let hub = Server::start(hub_of(files.clone())).await;
    let program = Program::new();
    let scratch = partial_folder(&program);
    fs::create_dir_all(scratch.join("onnx/deeper")).unwrap();
    let elsewhere = program.path("elsewhere");
    fs::write(&elsewhere, "mine").unwrap();
    std::os::unix::fs::symlink(&elsewhere, scratch.join("link")).unwrap();
    // Files left by a download from a different mirror and by an interrupted one of a different precision.
    let manifest = fs::read(repository(MADE).join("manifest.toml")).unwrap();
    fs::write(scratch.join("manifest.toml"), manifest).unwrap();
    for name in [
        "onnx/model_fp16.onnx",
        "onnx/model.onnx.part",
        "onnx/deeper/x",
    ] {
        fs::write(scratch.join(name), "harm").unwrap();
    }
    pulled(&program, &hub.url, None).await.expect_code(0);
    let listed = |path: &Path| files.iter().any(|(name, _)| path.ends_with(name));
    for (path, _) in everything(&program.path("in/here/models/tiny")) {
        assert!(listed(&path), "{}", path.display());
    }
    assert_eq!(fs::read(elsewhere).unwrap(), b"mine");
    assert!(!scratch.exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn redirects_send_the_token_only_to_the_endpoint() {
    let files = files_of(EXPORTED);
    let other = Arc::new(Mutex::new(String::new()));
    let (serve, to) = (hub_of(files.clone()), Arc::clone(&other));
    let endpoint = Server::start(move |path| {
        let other = to.lock().unwrap().clone();
        if let Some(file) = path.strip_prefix("second/") {
            // A client that strips the token only once would leak it at the second hop.
            return redirect(&format!("{other}/{file}"));
        }
        if path.starts_with("back/") || path.starts_with("api/") {
            return serve(path);
        }
        match path.rsplit('/').next().unwrap() {
            "config.json" => redirect(&format!("/second/{path}")),
            "tokenizer.json" => redirect(&format!("{other}/away/{path}")),
            _ => serve(path),
        }
    })
    .await;
    let (serve, home) = (hub_of(files), endpoint.url.clone());
    let stranger = Server::start(move |path| match path.strip_prefix("away/") {
        Some(file) => redirect(&format!("{home}/back/{file}")),
        None => serve(path),
    })
    .await;
    other.lock().unwrap().clone_from(&stranger.url);

    let program = Program::new();
    let ran = pulled(&program, &endpoint.url, Some("hf_secret")).await;
    ran.expect_code(0);
    assert!(!ran.stderr.contains("hf_secret"));
    let bearer = Some("Bearer hf_secret".to_owned());
    // Requested from the endpoint, from the endpoint again, and then from another host.
    assert_eq!(
        endpoint.authorizations("/config.json"),
        [bearer.clone(), bearer.clone()]
    );
    assert_eq!(stranger.authorizations("/config.json"), [None]);
    // Requested from the endpoint, from another host, and then from the endpoint again, now without the token.
    assert_eq!(endpoint.authorizations("/tokenizer.json"), [bearer, None]);
    assert_eq!(stranger.authorizations("/tokenizer.json"), [None]);
    let mut to_stranger = stranger.authorizations("").into_iter();
    assert!(to_stranger.all(|authorization| authorization.is_none()));
}

#[tokio::test(flavor = "multi_thread")]
async fn redirects_are_limited() {
    let endpoint = Server::start(|path| redirect(&format!("/{path}x"))).await;
    pulled(&Program::new(), &endpoint.url, None)
        .await
        .expect_exit(5, "redirect");
    assert_eq!(endpoint.authorizations("").len(), 11);
}

#[tokio::test(flavor = "multi_thread")]
async fn endpoint_credentials_are_hidden_and_sent_only_to_the_endpoint() {
    let files = files_of(EXPORTED);
    let serve = hub_of(files.clone());
    let stranger = Server::start(hub_of(files)).await;
    let other = stranger.url.clone();
    let endpoint = Server::start(move |path| {
        if path.contains("gated") {
            return StatusCode::FORBIDDEN.into_response();
        }
        if path.starts_with("api/") {
            return serve(path);
        }
        redirect(&format!("{other}/{path}"))
    })
    .await;
    let with_login = endpoint.url.replace("http://", "http://me:hush-hush@");
    let program = Program::new();
    let ran = pulled(&program, &with_login, Some("hf_secret")).await;
    ran.expect_code(0);
    // The Base64 string decodes to `me:hush-hush`.
    let basic = Some("Basic bWU6aHVzaC1odXNo".to_owned());
    assert_eq!(endpoint.authorizations("/config.json"), [basic]);
    assert_eq!(stranger.authorizations("/config.json"), [None]);
    assert!(!ran.stderr.contains("hush"), "{}", ran.stderr);
    for wrong in [
        with_login.replace("127.0.0.1", "127.0.0.1.invalid:x"),
        format!("{with_login}/gated"),
        "ftp://me:hush-hush@127.0.0.1".to_owned(),
        "me:hush-hush@127.0.0.1".to_owned(),
    ] {
        let mut command = program.command("model pull someone/tiny --to x -vv");
        command.env("HF_ENDPOINT", &wrong).env_remove("HF_TOKEN");
        let output = tokio::task::spawn_blocking(move || command.output().unwrap());
        let ran = finished(output.await.unwrap());
        assert_ne!(ran.code, 0, "{wrong}");
        assert!(!ran.stderr.contains("hush"), "{}", ran.stderr);
    }
}

// macOS reads certificates from its keychain.
#[cfg(target_os = "linux")]
#[test]
fn missing_certificates_are_not_reported_as_a_bad_token() {
    let program = Program::new();
    let mut command = program.command("model pull someone/tiny");
    command.env("HF_ENDPOINT", "https://127.0.0.1:9");
    command.env("SSL_CERT_FILE", "/dev/null");
    command.env_remove("SSL_CERT_DIR");
    let ran = finished(command.output().unwrap());
    assert_eq!(ran.code, 2, "{}", ran.stderr);
    assert!(ran.stderr.contains("CA certificates"), "{}", ran.stderr);
}

/// Returns a body that never ends.
fn endless(start: &'static [u8], more: &'static [u8]) -> Response {
    let pieces = stream::iter([Ok::<_, std::io::Error>(start)]);
    Body::from_stream(pieces.chain(stream::repeat_with(move || Ok(more)))).into_response()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_endless_hub_listing_is_abandoned() {
    let hub = Server::start(|_| endless(br#"{"sha": "a", "siblings": ["#, &[b' '; 8_192])).await;
    pulled(&Program::new(), &hub.url, None)
        .await
        .expect_exit(5, "longer than 8 MiB");
    // The listing is requested once.
    assert_eq!(hub.authorizations("").len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_longer_than_announced_is_abandoned_and_deleted() {
    let serve = hub_of(files_of(EXPORTED));
    let hub = Server::start(move |path| {
        if path.ends_with("/resolve/0123456789abcdef0123456789abcdef01234567/tokenizer.json") {
            return endless(b"{", &[b' '; 8_192]);
        }
        serve(path)
    })
    .await;
    let program = Program::new();
    pulled(&program, &hub.url, None)
        .await
        .expect_exit(75, "`tokenizer.json` does not match");
    let found = everything(program.folder.path());
    let files = found.iter().map(|(path, _)| path.file_name().unwrap());
    assert_eq!(files.collect::<Vec<_>>(), ["config.json"]);
    assert_eq!(hub.authorizations("tokenizer.json").len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_partial_file_that_does_not_resume_is_downloaded_again() {
    let (serve, asked) = (hub_of(files_of(EXPORTED)), AtomicU32::new(0));
    let hub = Server::start(move |path| {
        if path.ends_with("/tokenizer.json") && asked.fetch_add(1, Ordering::Relaxed) == 0 {
            let range = [(header::CONTENT_RANGE, "bytes 7-9/10")];
            return (StatusCode::PARTIAL_CONTENT, range, "xyz").into_response();
        }
        serve(path)
    })
    .await;
    let program = Program::new();
    let scratch = partial_folder(&program);
    fs::create_dir_all(&scratch).unwrap();
    fs::write(scratch.join("tokenizer.json"), "{").unwrap();
    // Longer than the listed file.
    fs::write(scratch.join("config.json"), vec![b' '; 100_000]).unwrap();
    pulled(&program, &hub.url, None).await.expect_code(0);
}

#[tokio::test(flavor = "multi_thread")]
async fn files_without_lfs_are_hashed() {
    let files = files_of(EXPORTED);
    let mut changed = files.clone();
    for (name, bytes) in &mut changed {
        if name == "config.json" {
            // The file keeps its length and is still valid JSON.
            let at = bytes.iter().position(|b| *b == b'1').unwrap();
            bytes[at] = b'2';
        }
    }
    let give = hub_of(changed);
    let hub = Server::start(move |path| {
        if path.starts_with("api/") {
            return axum::Json(listing(&files)).into_response();
        }
        give(path)
    })
    .await;
    let program = Program::new();
    pulled(&program, &hub.url, None)
        .await
        .expect_exit(75, "`config.json` does not match");
    assert_eq!(everything(program.folder.path()), []);
}
