//! A data set of the hub on the loopback interface: a list in pages, and files that another host gives, in parts.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::json;

/// The commit of the branch `main`.
pub const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";

/// A request: host, path with query, authorization.
pub type Asked = (&'static str, String, Option<String>);

#[derive(Default)]
struct Shelf {
    files: BTreeMap<String, Vec<u8>>,
    /// Where the files are.
    elsewhere: String,
    endpoint: String,
    token: Option<String>,
    /// Statuses of the next answers of the host that has the files.
    faults: Vec<(u16, &'static str)>,
    asked: Vec<Asked>,
}

/// The data set `someone/things` on a hub that runs as long as the test.
pub struct DataSet {
    pub url: String,
    shelf: Arc<Mutex<Shelf>>,
}

impl DataSet {
    /// With a token, it is asked of everybody.
    pub async fn start(token: Option<&str>) -> Self {
        let shelf = Arc::new(Mutex::new(Shelf::default()));
        let url = serve(Router::new().fallback(hub).with_state(shelf.clone())).await;
        let elsewhere = serve(Router::new().fallback(file).with_state(shelf.clone())).await;
        {
            let mut shelf = shelf.lock().unwrap();
            shelf.elsewhere = elsewhere;
            shelf.endpoint.clone_from(&url);
            shelf.token = token.map(str::to_owned);
        }
        Self { url, shelf }
    }

    pub fn put(&self, name: &str, content: impl Into<Vec<u8>>) {
        let files = &mut self.shelf.lock().unwrap().files;
        files.insert(name.to_owned(), content.into());
    }

    /// The next part is refused with this status, and this as `Retry-After`.
    pub fn refuse(&self, status: u16, wait: &'static str) {
        self.shelf.lock().unwrap().faults.push((status, wait));
    }

    pub fn asked(&self) -> Vec<Asked> {
        self.shelf.lock().unwrap().asked.clone()
    }
}

async fn serve(router: Router) -> String {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, router).await });
    url
}

fn heard(shelf: &mut Shelf, host: &'static str, request: &Request) -> (String, Option<String>) {
    let path = request.uri().path_and_query().unwrap().to_string();
    let authorization = request.headers().get(header::AUTHORIZATION);
    let authorization = authorization.map(|value| value.to_str().unwrap().to_owned());
    shelf
        .asked
        .push((host, path.clone(), authorization.clone()));
    (path, authorization)
}

async fn hub(State(shelf): State<Arc<Mutex<Shelf>>>, request: Request) -> Response {
    let mut shelf = shelf.lock().unwrap();
    let (path, authorization) = heard(&mut shelf, "hub", &request);
    if let Some(token) = &shelf.token
        && authorization != Some(format!("Bearer {token}"))
    {
        return (StatusCode::UNAUTHORIZED, [("x-error-code", "GatedRepo")]).into_response();
    }
    if path == "/api/datasets/someone/things/revision/main" {
        return axum::Json(json!({"sha": COMMIT, "siblings": []})).into_response();
    }
    let tree = format!("/api/datasets/someone/things/tree/{COMMIT}");
    if let Some(rest) = path.strip_prefix(&tree) {
        return listed(&shelf, &tree, rest);
    }
    let resolve = format!("/datasets/someone/things/resolve/{COMMIT}/");
    match path.strip_prefix(&resolve) {
        Some(name) if shelf.files.contains_key(name) => {
            let to = format!("{}/{name}?signature=once", shelf.elsewhere);
            (StatusCode::FOUND, [(header::LOCATION, to)]).into_response()
        }
        _ => (StatusCode::NOT_FOUND, [("x-error-code", "EntryNotFound")]).into_response(),
    }
}

/// One file a page.
fn listed(shelf: &Shelf, tree: &str, rest: &str) -> Response {
    let (folder, query) = rest.split_once('?').unwrap();
    let folder = folder.trim_start_matches('/');
    let page: usize = query
        .split_once("cursor=")
        .map_or(0, |(_, cursor)| cursor.parse().unwrap());
    let start = match folder {
        "" => String::new(),
        folder => format!("{folder}/"),
    };
    let deep = query.contains("recursive=true");
    let is_here =
        |name: &&String| name.starts_with(&start) && (deep || !name[start.len()..].contains('/'));
    let names: Vec<&String> = shelf.files.keys().filter(is_here).collect();
    let mut entries = vec![json!({"type": "directory", "oid": "d", "size": 0, "path": "folder"})];
    if let Some(name) = names.get(page) {
        let size = shelf.files[*name].len();
        entries.push(
            json!({"type": "file", "oid": "pointer", "size": size, "path": name,
            "lfs": {"oid": format!("hash of {name}"), "size": size, "pointerSize": 130}}),
        );
    }
    let mut answer = axum::Json(entries).into_response();
    if page + 1 < names.len() {
        let next = format!(
            "<{}{tree}{}?recursive={deep}&cursor={}>; rel=\"next\"",
            shelf.endpoint,
            if folder.is_empty() {
                String::new()
            } else {
                format!("/{folder}")
            },
            page + 1
        );
        answer
            .headers_mut()
            .insert(header::LINK, next.parse().unwrap());
    }
    answer
}

async fn file(State(shelf): State<Arc<Mutex<Shelf>>>, request: Request) -> Response {
    let mut shelf = shelf.lock().unwrap();
    heard(&mut shelf, "elsewhere", &request);
    if !shelf.faults.is_empty() {
        let (status, wait) = shelf.faults.remove(0);
        let status = StatusCode::from_u16(status).unwrap();
        return (status, [(header::RETRY_AFTER, wait)]).into_response();
    }
    let name = request.uri().path().trim_start_matches('/');
    let content = &shelf.files[name];
    let range = request.headers()[header::RANGE].to_str().unwrap();
    let (from, to) = range
        .strip_prefix("bytes=")
        .unwrap()
        .split_once('-')
        .unwrap();
    let (from, to): (usize, usize) = (from.parse().unwrap(), to.parse().unwrap());
    let named = format!("bytes {from}-{to}/{}", content.len());
    Response::builder()
        .status(StatusCode::PARTIAL_CONTENT)
        .header(header::CONTENT_RANGE, named)
        .body(Body::from(content[from..=to].to_vec()))
        .unwrap()
}
