//! A misbehaving HTTP server: it stops sending, sends without end, sends slowly, or resets the connection.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use topicmill_core::clock::SystemClock;

/// The response to a request.
#[derive(Debug, Clone)]
pub enum Act {
    /// Sends these bytes and closes the connection.
    Answer(Vec<u8>),
    /// Sends these bytes, and then nothing while the client is waiting.
    Silence(Vec<u8>),
    /// Sends these bytes, and then spaces, up to a gigabyte.
    Endless(Vec<u8>),
    /// Sends these bytes, and then an occasional space while the client is waiting.
    Drip(Vec<u8>),
    /// Resets the connection without a response.
    Reset,
}

/// Returns a response whose body is valid JSON.
pub fn json_answer(status: &str, headers: &str, body: &Value) -> Act {
    let body = body.to_string();
    let length = body.len();
    Act::Answer(
        format!(
            "HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\
             connection: close\r\n{headers}\r\n{body}"
        )
        .into_bytes(),
    )
}

/// Returns the head of a response without its body.
pub fn head(more: &str) -> Vec<u8> {
    format!("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n{more}\r\n").into_bytes()
}

/// A server that stops with the test's runtime.
pub struct Wire {
    pub url: String,
    seen: Arc<Mutex<Vec<String>>>,
    sent: Arc<AtomicU64>,
}

impl Wire {
    /// Starts a server that answers a POST with an access token and any other request with `act(n, head)`, where `n`
    /// counts these requests from 0.
    pub async fn start(act: impl Fn(usize, &str) -> Act + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let (seen, sent) = (Arc::<Mutex<Vec<String>>>::default(), Arc::default());
        let wire = Self {
            url,
            seen: seen.clone(),
            sent: Arc::clone(&sent),
        };
        let act = Arc::new(act);
        tokio::spawn(async move {
            while let Ok((mut socket, _)) = listener.accept().await {
                let (act, seen, sent) = (act.clone(), seen.clone(), sent.clone());
                tokio::spawn(async move {
                    let head = read_head(&mut socket).await;
                    let act = if head.starts_with("POST") {
                        let grant =
                            json!({"access_token": "abc", "expires_in": 3600, "scope": "read"});
                        json_answer("200 OK", "", &grant)
                    } else {
                        let number = {
                            let mut seen = seen.lock().unwrap();
                            seen.push(head.clone());
                            seen.len() - 1
                        };
                        act(number, &head)
                    };
                    perform(socket, act, &sent).await;
                });
            }
        });
        wire
    }

    /// Counts the requests so far, except those for tokens.
    pub fn requests(&self) -> usize {
        self.seen.lock().unwrap().len()
    }

    /// Counts the spaces sent by [`Act::Endless`]; the client has read them, or they are in socket buffers.
    pub fn spaces_sent(&self) -> u64 {
        self.sent.load(Ordering::SeqCst)
    }
}

/// Reads a request: its head, and its body if it has a `content-length`.
async fn read_head(socket: &mut TcpStream) -> String {
    let (mut bytes, mut chunk) = (Vec::new(), [0; 4096]);
    loop {
        match socket.read(&mut chunk).await {
            Ok(0) | Err(_) => break,
            Ok(n) => bytes.extend_from_slice(&chunk[..n]),
        }
        let text = String::from_utf8_lossy(&bytes);
        let Some((head, body)) = text.split_once("\r\n\r\n") else {
            continue;
        };
        let length = head.lines().find_map(|line| {
            let (name, value) = line.split_once(':')?;
            name.eq_ignore_ascii_case("content-length")
                .then(|| value.trim().parse::<usize>().ok())?
        });
        if body.len() >= length.unwrap_or(0) {
            break;
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

async fn perform(mut socket: TcpStream, act: Act, sent: &AtomicU64) {
    let mut rest = [0; 64];
    match act {
        Act::Answer(bytes) => {
            let _ = socket.write_all(&bytes).await;
        }
        Act::Silence(bytes) => {
            let _ = socket.write_all(&bytes).await;
            // Ends when the client disconnects.
            let _ = socket.read(&mut rest).await;
        }
        Act::Endless(bytes) => {
            let _ = socket.write_all(&bytes).await;
            let chunk = vec![b' '; 64 << 10];
            while sent.load(Ordering::SeqCst) < 1 << 30 {
                if socket.write_all(&chunk).await.is_err() {
                    return;
                }
                sent.fetch_add(chunk.len() as u64, Ordering::SeqCst);
            }
        }
        Act::Drip(bytes) => {
            let _ = socket.write_all(&bytes).await;
            let clock = SystemClock::shared();
            while socket.write_all(b" ").await.is_ok() {
                clock.sleep(Duration::from_millis(20)).await;
            }
        }
        #[expect(deprecated, reason = "with a time of 0 it does not block")]
        Act::Reset => {
            let _ = socket.set_linger(Some(Duration::ZERO));
        }
    }
}
