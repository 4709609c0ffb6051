//! Real Chromium, driven by chromedriver. It opens a page at a given width and in a given colour scheme, and fails the
//! test if the console shows an error, if the page sends a request to another origin, or if text is cut off.

use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;

use base64::Engine as _;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::notice::not_tested;

/// The colour scheme that the page should use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scheme {
    Light,
    Dark,
}

impl Scheme {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Light => "light",
            Self::Dark => "dark",
        }
    }
}

/// The widths of a phone and a desktop, each with both colour schemes.
pub const VIEWS: [(u32, Scheme); 4] = [
    (380, Scheme::Light),
    (380, Scheme::Dark),
    (1400, Scheme::Light),
    (1400, Scheme::Dark),
];

/// The height of the window.
const HEIGHT: u64 = 900;

/// Chromium with its own profile, one for each test.
pub struct Browser {
    client: reqwest::Client,
    /// The URL of the `WebDriver` session.
    session: String,
    origin: Mutex<String>,
    // Dropped before `_folder`, because the processes must end before their folder is removed.
    _chromedriver: Chromedriver,
    _folder: TempDir,
}

struct Chromedriver {
    child: Child,
    port: u16,
}

impl Chromedriver {
    /// Starts chromedriver on a free port, or returns `None` if it is not installed.
    fn start(folder: &TempDir) -> Option<Self> {
        let mut child = Command::new("chromedriver")
            .arg("--port=0")
            .env("TMPDIR", folder.path())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            // Its own process group, so that all of Chromium is killed with it.
            .process_group(0)
            .spawn()
            .ok()?;
        let lines = BufReader::new(child.stdout.take().expect("stdout is piped")).lines();
        let port = lines.map_while(Result::ok).find_map(|line| {
            let (_, port) = line.split_once("started successfully on port ")?;
            port.trim_end_matches('.').parse().ok()
        });
        let port = port.expect("chromedriver prints its port");
        Some(Self { child, port })
    }
}

impl Drop for Chromedriver {
    fn drop(&mut self) {
        let group = format!("-{}", self.child.id());
        drop(Command::new("kill").args(["-KILL", "--", &group]).status());
        drop(self.child.wait());
    }
}

fn has(program: &str) -> bool {
    let mut version = Command::new(program);
    let version = version.arg("--version");
    let version = version.stdout(Stdio::null()).stderr(Stdio::null());
    version.status().is_ok_and(|status| status.success())
}

/// Returns the name under which Chromium is installed.
fn chromium() -> Option<&'static str> {
    ["chromium", "chromium-browser", "google-chrome"]
        .into_iter()
        .find(|name| has(name))
}

impl Browser {
    /// Starts Chromium. If Chromium or chromedriver is not installed, prints a conspicuous line and returns `None`, or
    /// panics if `TOPICMILL_BROWSER_TESTS` is `must`.
    pub async fn start() -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let (Some(chromium), true) = (chromium(), has("chromedriver")) else {
            let must = std::env::var("TOPICMILL_BROWSER_TESTS").is_ok_and(|word| word == "must");
            let what = "in a browser: chromium or chromedriver is not installed; \
                        `apt install chromium chromium-driver` installs both";
            assert!(!must, "not tested {what}");
            not_tested(what);
            return None;
        };
        let chromedriver = Chromedriver::start(&folder).expect("chromedriver starts");
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = reqwest::Client::new();
        let sessions = format!("http://127.0.0.1:{}/session", chromedriver.port);
        let wanted = json!({"capabilities": {"alwaysMatch": capabilities(chromium, &folder)}});
        let started = send(client.post(&sessions).json(&wanted)).await;
        let started = started.expect("Chromium starts");
        Some(Self {
            client,
            session: format!("{sessions}/{}", started["sessionId"].as_str().unwrap()),
            origin: Mutex::default(),
            _chromedriver: chromedriver,
            _folder: folder,
        })
    }

    async fn get(&self, path: &str) -> Result<Value, String> {
        send(self.client.get(format!("{}/{path}", self.session))).await
    }

    async fn post(&self, path: &str, body: &Value) -> Result<Value, String> {
        let url = format!("{}/{path}", self.session);
        send(self.client.post(url).json(body)).await
    }

    async fn devtools(&self, command: &str, params: Value) {
        let body = json!({"cmd": command, "params": params});
        self.post("goog/cdp/execute", &body).await.unwrap();
    }

    /// Opens a page in a window of this width and checks it.
    pub async fn open(&self, url: &str, width: u32, scheme: Scheme) {
        self.go(url, width, scheme).await;
        self.check().await;
    }

    /// Opens a page without the checks.
    pub async fn go(&self, url: &str, width: u32, scheme: Scheme) {
        self.window(u64::from(width), HEIGHT).await;
        let scheme =
            json!({"features": [{"name": "prefers-color-scheme", "value": scheme.as_str()}]});
        self.devtools("Emulation.setEmulatedMedia", scheme).await;
        // Discard late entries from the previous page.
        self.load("about:blank").await;
        self.take_log("browser").await;
        self.take_log("performance").await;
        *self.origin.lock().unwrap() = origin(url);
        self.load(url).await;
    }

    async fn load(&self, url: &str) {
        self.post("url", &json!({"url": url})).await.unwrap();
    }

    /// Returns chromedriver's log entries of a kind since the last call.
    async fn take_log(&self, kind: &str) -> Vec<Value> {
        let entries = self.post("se/log", &json!({"type": kind})).await.unwrap();
        entries.as_array().unwrap().clone()
    }

    /// Panics if the page has any of the [`problems`](Self::problems).
    pub async fn check(&self) {
        let page = self.get("url").await.unwrap();
        let faults = self.problems().await;
        assert!(
            faults.is_empty(),
            "{page} at {}: {faults:#?}",
            self.width().await
        );
    }

    /// Describes errors in the console, requests to other origins, and the layout faults that `FAULTS` finds.
    pub async fn problems(&self) -> Vec<String> {
        // Run a script before reading the log: its result arrives after all earlier events, which chromedriver may
        // receive only after the page has loaded.
        let shown = self.eval(FAULTS).await;
        let console = self.take_log("browser").await;
        let network = self.take_log("performance").await;
        let errors = console
            .iter()
            .filter(|entry| entry["level"] == "SEVERE" || entry["level"] == "WARNING")
            .map(|entry| format!("console message: {}", entry["message"]));
        let origin = self.origin.lock().unwrap().clone();
        let requested = network.iter().filter_map(|entry| {
            let message: Value = serde_json::from_str(entry["message"].as_str()?).ok()?;
            let message = &message["message"];
            let method = message["method"].as_str()?;
            let asked = ["Network.requestWillBeSent", "Network.webSocketCreated"].contains(&method);
            let params = &message["params"];
            let url = params["request"]["url"].as_str().or(params["url"].as_str());
            url.filter(|_| asked).map(str::to_owned)
        });
        let left = requested
            .filter(|url| {
                !url.starts_with(&origin) && !url.starts_with("data:") && url != "about:blank"
            })
            .map(|url| format!("a request left the page: {url}"));
        let shown = shown.as_array().unwrap().iter();
        let shown = shown.map(|fault| fault.as_str().unwrap().to_owned());
        errors.chain(left).chain(shown).collect()
    }

    pub async fn width(&self) -> u64 {
        self.eval("return innerWidth").await.as_u64().unwrap()
    }

    /// Returns the result of a script. The page's content security policy does not apply to it.
    pub async fn eval(&self, script: &str) -> Value {
        self.execute(script).await.unwrap()
    }

    async fn execute(&self, script: &str) -> Result<Value, String> {
        let body = json!({"script": script, "args": []});
        self.post("execute/sync", &body).await
    }

    /// Returns the paths of the elements that match a selector.
    async fn find_all(&self, css: &str) -> Vec<String> {
        let wanted = json!({"using": "css selector", "value": css});
        let found = self.post("elements", &wanted).await.unwrap();
        let ids = found.as_array().unwrap().iter().map(|found| {
            let (_, id) = found.as_object().unwrap().iter().next().unwrap();
            format!("element/{}", id.as_str().unwrap())
        });
        ids.collect()
    }

    async fn find(&self, css: &str) -> String {
        let found = self.find_all(css).await;
        found.into_iter().next().unwrap_or_else(|| panic!("{css}"))
    }

    /// Clicks the first match of a selector, as a user would: a covered element cannot be clicked.
    pub async fn click(&self, css: &str) {
        let element = self.find(css).await;
        let center = r#"scrollIntoView({block: "center", inline: "center"})"#;
        self.eval(&format!("document.querySelector({css:?}).{center}"))
            .await;
        let clicked = self.post(&format!("{element}/click"), &json!({})).await;
        clicked.unwrap_or_else(|error| panic!("click {css}: {error}"));
    }

    /// Appends text to a field by typing it.
    pub async fn type_into(&self, css: &str, text: &str) {
        let path = format!("{}/value", self.find(css).await);
        self.post(&path, &json!({"text": text})).await.unwrap();
    }

    /// Presses keys in the focused element.
    pub async fn press(&self, keys: &str) {
        let strokes = keys.chars().flat_map(|key| {
            ["keyDown", "keyUp"].map(|stroke| json!({"type": stroke, "value": key}))
        });
        let strokes: Vec<Value> = strokes.collect();
        let body = json!({"actions": [{"type": "key", "id": "keyboard", "actions": strokes}]});
        self.post("actions", &body).await.unwrap();
    }

    /// Presses a key that opens another page. Keys pressed through `WebDriver` would be repeated there.
    pub async fn press_and_navigate(&self, key: &str) {
        let down = json!({"type": "keyDown", "key": key, "text": key});
        self.devtools("Input.dispatchKeyEvent", down).await;
        let up = json!({"type": "keyUp", "key": key});
        self.devtools("Input.dispatchKeyEvent", up).await;
    }

    /// Returns the visible text of the first match of a selector.
    pub async fn text(&self, css: &str) -> String {
        let text = self.get(&format!("{}/text", self.find(css).await)).await;
        text.unwrap().as_str().unwrap().to_owned()
    }

    /// Counts the matches of a selector.
    pub async fn count(&self, css: &str) -> usize {
        self.find_all(css).await.len()
    }

    /// Waits up to ten seconds until a JavaScript condition holds; in the meantime, the browser may open another page.
    pub async fn until(&self, condition: &str) {
        let script = format!("try {{ return !!({condition}); }} catch (_) {{ return false; }}");
        for _ in 0..500 {
            // A script fails on a page that is being unloaded.
            if self.execute(&script).await == Ok(json!(true)) {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        panic!("still false after ten seconds: {condition}");
    }

    /// Returns a screenshot of the whole page as PNG and stores it in the folder that `TOPICMILL_BROWSER_PICTURES`
    /// names, if set.
    pub async fn screenshot(&self, name: &str) -> Vec<u8> {
        let size =
            "const page = document.documentElement; return [page.clientWidth, page.scrollHeight]";
        let size = self.eval(size).await;
        self.window(size[0].as_u64().unwrap(), size[1].as_u64().unwrap())
            .await;
        let png = self.get("screenshot").await.unwrap();
        let base64 = base64::engine::general_purpose::STANDARD;
        let png = base64.decode(png.as_str().unwrap()).unwrap();
        self.window(size[0].as_u64().unwrap(), HEIGHT).await;
        if let Some(folder) = std::env::var_os("TOPICMILL_BROWSER_PICTURES") {
            let path = std::path::Path::new(&folder).join(format!("{name}.png"));
            std::fs::write(path, &png).unwrap();
        }
        png
    }

    async fn window(&self, width: u64, height: u64) {
        let metrics =
            json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": false});
        self.devtools("Emulation.setDeviceMetricsOverride", metrics)
            .await;
    }
}

/// Returns the value of a `WebDriver` response, or its error.
async fn send(request: reqwest::RequestBuilder) -> Result<Value, String> {
    let response = request.send().await.map_err(|error| error.to_string())?;
    let is_good = response.status().is_success();
    let mut body: Value = response.json().await.map_err(|error| error.to_string())?;
    let value = body["value"].take();
    if is_good {
        Ok(value)
    } else {
        Err(value.to_string())
    }
}

/// Returns the prefix of URLs that belong to the page: for a file, the whole URL.
fn origin(url: &str) -> String {
    match url.split_once("://") {
        Some(("http", rest)) => format!("http://{}/", rest.split('/').next().unwrap()),
        _ => url.to_owned(),
    }
}

fn capabilities(chromium: &str, folder: &TempDir) -> Value {
    let path = Command::new("which").arg(chromium).output().unwrap();
    let path = String::from_utf8(path.stdout).unwrap();
    let profile = folder.path().join("profile");
    let switches = [
        "--headless",
        // Chromium's sandbox does not start for root, the usual user of a container; these pages are trusted.
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--no-first-run",
        "--disable-background-networking",
        "--disable-component-update",
        "--disable-sync",
        "--hide-scrollbars",
        &format!("--user-data-dir={}", profile.display()),
    ];
    json!({
        "browserName": "chrome",
        "goog:chromeOptions": {"binary": path.trim(), "args": switches},
        "goog:loggingPrefs": {"browser": "ALL", "performance": "ALL"},
    })
}

/// Script that describes elements wider than the window, and chart text that is cut off, too small or overlapping.
const FAULTS: &str = r#"
const faults = [];
const root = document.documentElement;
if (root.scrollWidth > innerWidth + 1) {
  const out = [...document.querySelectorAll("body *")].filter(e => e.getBoundingClientRect().right > innerWidth + 1);
  const first = out.slice(0, 3).map(e => e.outerHTML.slice(0, 160)).join(" | ");
  faults.push(`the page is ${root.scrollWidth} wide in a window of ${innerWidth}: ${first}`);
}
for (const figure of document.querySelectorAll("figure:not(:has(.wide))"))
  if (figure.scrollWidth > figure.clientWidth + 1) faults.push(`a chart is cut off: ${figure.outerHTML.slice(0, 160)}`);
for (const text of document.querySelectorAll("svg text")) {
  const svg = text.ownerSVGElement.getBoundingClientRect(), box = text.getBoundingClientRect();
  if (!box.width) continue;
  if (box.left < svg.left - 1 || box.right > svg.right + 1 || box.top < svg.top - 1 || box.bottom > svg.bottom + 1)
    faults.push(`"${text.textContent}" extends beyond its chart: ${Math.round(box.left)}-${Math.round(box.right)} of `
      + `${Math.round(svg.left)}-${Math.round(svg.right)}`);
  const size = parseFloat(getComputedStyle(text).fontSize) * svg.width / text.ownerSVGElement.viewBox.baseVal.width;
  if (size < 9.5) faults.push(`"${text.textContent}" is only ${size.toFixed(1)} pixels high`);
}
for (const svg of document.querySelectorAll("svg")) {
  const boxes = [...svg.querySelectorAll("text:not([transform])")].map(t => [t, t.getBoundingClientRect()]);
  const texts = boxes.filter(([, b]) => b.width);
  for (let i = 0; i < texts.length; i++) for (let j = 0; j < i; j++) {
    const [a, b] = [texts[i][1], texts[j][1]];
    const width = Math.min(a.right, b.right) - Math.max(a.left, b.left);
    const height = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
    if (width > 1 && height > 3)
      faults.push(`"${texts[i][0].textContent}" overlaps "${texts[j][0].textContent}"`);
  }
}
return faults.slice(0, 8);
"#;
