//! A real object store on the loopback interface, behind a proxy of our own that injures what it is told to: moto's S3, or
//! Azurite, which is an Azure Blob Storage, where `TOPICMILL_TEST_STORE` is `az`.
//!
//! Google's store takes nearly the same requests as S3. Where the variable is `gs`, the client is that for Google, the store is
//! moto, and the proxy puts S3's words in the place of Google's for what differs: conditions and versions.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::{Body, Bytes, to_bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderMap, Method, StatusCode, header};
use axum::response::Response;
use chrono::TimeDelta;
use futures_util::stream;
use topicmill::objects::Address;

/// Starts the store, says where it is, and lives as long as somebody writes to its stdin.
const SERVER: &str = "\
import sys
from moto.server import ThreadedMotoServer
server = ThreadedMotoServer(ip_address='127.0.0.1', port=0, verbose=False)
server.start()
print('%s:%d' % server.get_host_and_port(), flush=True)
sys.stdin.read()
";

/// What nobody may ever read anywhere but in the environment.
pub const SECRET: &str = "hunter2/AN+OBJECT/SECRET/xyzzy";

/// Azurite's only account, and its key, which its manual has.
const ACCOUNT: &str = "devstoreaccount1";
const ACCOUNT_KEY: &str =
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==";

/// A shared access signature of that account, which permits everything: of these words, with that key.
const PASS: &str = "sv=2019-12-12&ss=b&srt=sco&sp=rwdlac\
    &se=2099-01-01T00:00:00Z&sig=YKAtmJudHaH98kax9IHOYkiCF9veHhGg4TBHNwluLXo%3D";

/// What is spoken with a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Spoken {
    S3,
    Google,
    Azure,
}

/// A right signature for moto, which gives nothing to whoever has none, and checks none.
const SIGNATURE: &str = "AWS4-HMAC-SHA256 Credential=us/20260101/us-east-1/s3/aws4_request, \
    SignedHeaders=host, Signature=0";

/// Google's condition of a write: on the number of the version that is to be there, 0 for none.
const GENERATION_MATCH: &str = "x-goog-if-generation-match";
/// And the number, in its answers.
const GENERATION: &str = "x-goog-generation";
/// What Google counts versions from: they are microseconds since 1970.
const FIRST_GENERATION: usize = 1_790_000_000_000_000;

/// By what some requests are known.
pub struct Words {
    /// A list of objects.
    pub list: &'static str,
    /// What makes an object of its parts.
    pub complete: (Method, &'static str),
}

/// What happens to a request in place of its answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// This status, with this word for it, and perhaps a `Retry-After`.
    Status(u16, &'static str, Option<&'static str>),
    /// Half of the body, and the connection closes.
    Cut,
    /// Fewer bytes than the range that the header names.
    Short,
    /// The store does what it is asked, and its answer is lost.
    LostAnswer,
    /// The store does nothing and says nothing.
    Silence,
}

/// Which requests are injured, how, and how often.
#[derive(Debug, Clone)]
pub struct Injury {
    pub method: Method,
    /// A part of the path with its query; with a `$` after it, the end of the path without its query.
    pub path: &'static str,
    pub fault: Fault,
    pub times: usize,
}

impl Injury {
    fn is_of(&self, path: &str) -> bool {
        match self.path.strip_suffix('$') {
            Some(end) => path.split('?').next().unwrap_or_default().ends_with(end),
            None => path.contains(self.path),
        }
    }
}

#[derive(Default)]
struct Orders {
    server: String,
    injuries: Vec<Injury>,
    /// Whether conditions are taken off writes, as by a store that knows none.
    deaf: bool,
    /// How many seconds the store's clock is ahead of what moto says.
    ahead: i64,
    /// Method, path with query, range.
    seen: Vec<(Method, String, Option<String>)>,
    /// The number of each version that was told, where Google's words are spoken.
    generations: Option<HashMap<String, usize>>,
}

impl Orders {
    /// Puts the words of S3 in the place of Google's.
    fn as_s3(&self, headers: &mut HeaderMap) {
        let Some(generations) = &self.generations else {
            return;
        };
        headers.insert(header::AUTHORIZATION, SIGNATURE.parse().unwrap());
        let Some(wanted) = headers.remove(GENERATION_MATCH) else {
            return;
        };
        let wanted: usize = wanted.to_str().unwrap().parse().unwrap();
        let (name, value) = if wanted == 0 {
            (header::IF_NONE_MATCH, "*")
        } else {
            let etag = generations.iter().find(|(_, number)| **number == wanted);
            let etag = etag.map_or("\"none\"", |(etag, _)| etag);
            (header::IF_MATCH, etag)
        };
        headers.insert(name, value.parse().unwrap());
    }

    /// Adds the number of the version that an answer tells of.
    fn as_google(&mut self, headers: &mut HeaderMap) {
        let (Some(generations), Some(etag)) = (&mut self.generations, headers.get(header::ETAG))
        else {
            return;
        };
        let next = FIRST_GENERATION + generations.len();
        let etag = etag.to_str().unwrap().to_owned();
        let number = *generations.entry(etag).or_insert(next);
        headers.insert(GENERATION, number.into());
    }
}

/// A store with a bucket `box`. It ends when it is dropped.
pub struct Bucket {
    /// Where clients ask.
    pub url: String,
    spoken: Spoken,
    orders: Arc<Mutex<Orders>>,
    server: Child,
    client: reqwest::Client,
}

impl Drop for Bucket {
    fn drop(&mut self) {
        // Its stdin closes, and it would end; this is sooner.
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

impl Bucket {
    /// None where moto is not installed, and nobody said that it must be: `make test` installs it.
    pub async fn start() -> Option<Self> {
        let spoken = match std::env::var("TOPICMILL_TEST_STORE").as_deref() {
            Ok("az") => Spoken::Azure,
            Ok("gs") => Spoken::Google,
            _ => Spoken::S3,
        };
        topicmill::source::http::install_tls();
        let (server, address) = match spoken {
            Spoken::S3 | Spoken::Google => moto()?,
            Spoken::Azure => azurite(),
        };
        let orders = Arc::new(Mutex::new(Orders {
            server: address,
            generations: (spoken == Spoken::Google).then(HashMap::new),
            ..Orders::default()
        }));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let mut headers = HeaderMap::new();
        if spoken != Spoken::Azure {
            headers.insert(header::AUTHORIZATION, SIGNATURE.parse().unwrap());
        }
        let builder = reqwest::Client::builder().no_gzip();
        let direct = builder.default_headers(headers).build().unwrap();
        let client = reqwest::Client::builder().no_gzip().build().unwrap();
        let router = Router::new()
            .fallback(passed)
            .with_state((Arc::clone(&orders), client));
        tokio::spawn(async move { axum::serve(listener, router).await });
        let bucket = Self {
            url,
            spoken,
            orders,
            server,
            client: direct,
        };
        match spoken {
            Spoken::S3 | Spoken::Google => bucket.put("", Vec::new()).await,
            Spoken::Azure => bucket.put("?restype=container", Vec::new()).await,
        }
        Some(bucket)
    }

    /// Where a key is.
    fn at(&self, key: &str) -> String {
        let server = &self.orders.lock().unwrap().server;
        match self.spoken {
            Spoken::S3 | Spoken::Google => format!("http://{server}/box/{key}"),
            Spoken::Azure => {
                let (key, query) = key.split_once('?').unwrap_or((key, ""));
                let slash = if key.is_empty() { "" } else { "/" };
                format!("http://{server}/{ACCOUNT}/box{slash}{key}?{query}&{PASS}")
            }
        }
    }

    /// An address in it, as people write it.
    pub fn address(&self, key: &str) -> Address {
        let scheme = match self.spoken {
            Spoken::S3 => "s3",
            Spoken::Google => "gs",
            Spoken::Azure => "az",
        };
        Address::parse(&format!("{scheme}://box/{key}")).unwrap()
    }

    /// By what some requests are known.
    pub fn words(&self) -> Words {
        match self.spoken {
            Spoken::S3 | Spoken::Google => Words {
                list: "list-type=2",
                complete: (Method::POST, "uploadId"),
            },
            Spoken::Azure => Words {
                list: "comp=list",
                complete: (Method::PUT, "comp=blocklist"),
            },
        }
    }

    /// Whether an upload in parts was begun and neither completed nor taken back.
    pub async fn has_begun(&self) -> bool {
        match self.spoken {
            Spoken::S3 | Spoken::Google => {
                let begun = self.get("?uploads").await.unwrap();
                String::from_utf8(begun).unwrap().contains("<Upload>")
            }
            // Azure lets parts go by itself.
            Spoken::Azure => false,
        }
    }

    /// Puts an object into the bucket, past the proxy.
    pub async fn put(&self, key: &str, content: impl Into<Vec<u8>>) {
        let mut put = self.client.put(self.at(key)).body(content.into());
        if self.spoken == Spoken::Azure && !key.starts_with('?') {
            put = put.header("x-ms-blob-type", "BlockBlob");
        }
        assert!(put.send().await.unwrap().status().is_success(), "{key}");
    }

    pub async fn get(&self, key: &str) -> Option<Vec<u8>> {
        let answer = self.client.get(self.at(key)).send().await.unwrap();
        let there = answer.status().is_success();
        Some(answer.bytes().await.unwrap().to_vec()).filter(|_| there)
    }

    pub async fn remove(&self, key: &str) {
        self.client.delete(self.at(key)).send().await.unwrap();
    }

    /// The keys of the bucket, in order.
    pub async fn keys(&self) -> Vec<String> {
        let (list, name) = match self.spoken {
            Spoken::S3 | Spoken::Google => ("?list-type=2", "<Key>"),
            Spoken::Azure => ("?restype=container&comp=list", "<Name>"),
        };
        let list = self.get(list).await.unwrap();
        let list = String::from_utf8(list).unwrap();
        let keys = list.split(name).skip(1);
        keys.map(|key| key.split_once('<').unwrap().0.to_owned())
            .collect()
    }

    pub fn injure(&self, method: Method, path: &'static str, fault: Fault, times: usize) {
        self.orders.lock().unwrap().injuries.push(Injury {
            method,
            path,
            fault,
            times,
        });
    }

    /// From now on no condition of a write is heeded. False where conditions are signed, so that nobody can take them off.
    pub fn be_deaf(&self) -> bool {
        self.orders.lock().unwrap().deaf = true;
        self.spoken != Spoken::Azure
    }

    /// Moves the store's clock on.
    pub fn let_pass(&self, seconds: i64) {
        self.orders.lock().unwrap().ahead += seconds;
    }

    /// Injuries that wait for a request still.
    pub fn waiting(&self) -> usize {
        self.orders.lock().unwrap().injuries.len()
    }

    /// The requests so far: method, path with query, range.
    pub fn seen(&self) -> Vec<(Method, String, Option<String>)> {
        self.orders.lock().unwrap().seen.clone()
    }

    /// What a client needs in its environment.
    pub fn variables(&self) -> Vec<(String, String)> {
        let endpoint = format!("{}/{ACCOUNT}", self.url);
        let account = format!(
            r#"{{"gcs_base_url": "{}", "disable_oauth": true, "client_email": "", "private_key": "{SECRET}", "private_key_id": ""}}"#,
            self.url
        );
        let variables = match self.spoken {
            Spoken::S3 => vec![
                ("AWS_ENDPOINT_URL", self.url.as_str()),
                ("AWS_ACCESS_KEY_ID", "AKIATESTTESTTEST"),
                ("AWS_SECRET_ACCESS_KEY", SECRET),
                ("AWS_REGION", "us-east-1"),
            ],
            Spoken::Google => vec![("GOOGLE_SERVICE_ACCOUNT_KEY", account.as_str())],
            Spoken::Azure => vec![
                ("AZURE_STORAGE_ENDPOINT", endpoint.as_str()),
                ("AZURE_STORAGE_ACCOUNT_NAME", ACCOUNT),
                ("AZURE_STORAGE_ACCOUNT_KEY", ACCOUNT_KEY),
            ],
        };
        let variables = variables.into_iter();
        variables
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect()
    }
}

/// Moto's S3, and where it is.
fn moto() -> Option<(Child, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let python = root.join(".venv-objects/bin/python");
    if !python.is_file() {
        assert!(
            std::env::var_os("CI").is_none(),
            "no object store: scripts/venv .venv-objects requirements-objects.txt --no-deps --require-hashes"
        );
        // Not `eprintln`: the test harness keeps that to itself where a test passes.
        let told = "\n*** NOT TESTED ON AN OBJECT STORE: `make test` installs one ***\n";
        std::io::stderr()
            .write_all(told.as_bytes())
            .expect("stderr is open");
        return None;
    }
    let mut server = Command::new(python)
        .args(["-c", SERVER])
        .env("AWS_ACCESS_KEY_ID", "moto")
        .env("AWS_SECRET_ACCESS_KEY", "moto")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut said = String::new();
    let stdout = server.stdout.take().unwrap();
    BufReader::new(stdout).read_line(&mut said).unwrap();
    Some((server, said.trim().to_owned()))
}

/// Azurite, and where it is.
fn azurite() -> (Child, String) {
    let program = "node_modules/azurite/dist/src/blob/main.js";
    let program = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join(".tools/azurite")
        .join(program);
    assert!(
        program.is_file(),
        "Azurite is not installed: `make check-stores` does it"
    );
    // Free again when Azurite asks for it.
    let port = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port();
    let mut server = Command::new("node")
        .arg(program)
        .args(["--blobPort", &port.to_string()])
        .args([
            "--inMemoryPersistence",
            "--skipApiVersionCheck",
            "--disableTelemetry",
            "--silent",
        ])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(server.stdout.take().unwrap()).lines();
    let listens = lines.any(|line| line.unwrap().contains("successfully listens"));
    assert!(listens, "Azurite ended before it listened");
    // Whoever writes to a pipe that nobody reads dies.
    std::thread::spawn(move || lines.for_each(drop));
    (server, format!("127.0.0.1:{port}"))
}

async fn passed(
    State((orders, client)): State<(Arc<Mutex<Orders>>, reqwest::Client)>,
    request: Request,
) -> Response {
    let path = request.uri().path_and_query().unwrap().to_string();
    let method = request.method().clone();
    let range = request.headers().get(header::RANGE);
    let range = range.map(|range| range.to_str().unwrap().to_owned());
    let (server, fault, deaf, ahead) = {
        let mut orders = orders.lock().unwrap();
        // The client for Google writes them so.
        let path = path.replace("%2F", "/").replace("%2E", ".");
        orders.seen.push((method.clone(), path.clone(), range));
        let hit = orders
            .injuries
            .iter()
            .position(|injury| injury.method == method && injury.is_of(&path));
        let fault = hit.map(|at| {
            let injury = &mut orders.injuries[at];
            injury.times -= 1;
            let fault = injury.fault.clone();
            if injury.times == 0 {
                orders.injuries.remove(at);
            }
            fault
        });
        (orders.server.clone(), fault, orders.deaf, orders.ahead)
    };
    if let Some(Fault::Status(status, code, wait)) = fault {
        let body = format!("<Error><Code>{code}</Code><AWSAccessKeyId>x</AWSAccessKeyId></Error>");
        let mut answer = Response::builder().status(status);
        if let Some(wait) = wait {
            answer = answer.header(header::RETRY_AFTER, wait);
        }
        return answer.body(Body::from(body)).unwrap();
    }
    if fault == Some(Fault::Silence) {
        std::future::pending::<()>().await;
    }
    let (parts, body) = request.into_parts();
    let body = to_bytes(body, usize::MAX).await.unwrap();
    let mut headers = parts.headers;
    orders.lock().unwrap().as_s3(&mut headers);
    if deaf {
        headers.remove(header::IF_MATCH);
        headers.remove(header::IF_NONE_MATCH);
    }
    let sent = client
        .request(method, format!("http://{server}{path}"))
        .headers(headers)
        .body(body)
        .send()
        .await
        .unwrap();
    let mut answer = Response::builder().status(sent.status());
    *answer.headers_mut().unwrap() = sent.headers().clone();
    // How Azurite's connection went on says nothing of ours.
    for name in [header::TRANSFER_ENCODING, header::CONNECTION] {
        answer.headers_mut().unwrap().remove(name);
    }
    orders
        .lock()
        .unwrap()
        .as_google(answer.headers_mut().unwrap());
    let date = sent.headers()[header::DATE].to_str().unwrap();
    let date = chrono::DateTime::parse_from_rfc2822(date).unwrap() + TimeDelta::seconds(ahead);
    let date = date.format("%a, %d %b %Y %H:%M:%S GMT").to_string();
    answer
        .headers_mut()
        .unwrap()
        .insert(header::DATE, date.parse().unwrap());
    let body = sent.bytes().await.unwrap();
    let half = body.slice(..body.len() / 2);
    let body = match fault {
        None | Some(Fault::Status(..) | Fault::Silence) => Body::from(body),
        // The header names all of it, so the server breaks the connection off.
        Some(Fault::Cut) => {
            Body::from_stream(stream::iter([Ok(half), Err(std::io::Error::other("cut"))]))
        }
        Some(Fault::Short) => {
            let headers = answer.headers_mut().unwrap();
            headers.insert(header::CONTENT_LENGTH, half.len().into());
            Body::from(half)
        }
        Some(Fault::LostAnswer) => {
            return Response::builder()
                .status(StatusCode::BAD_GATEWAY)
                .body(Body::from(Bytes::new()))
                .unwrap();
        }
    };
    answer.body(body).unwrap()
}
