//! Tests `topicmill serve`: pages and the API, through real sockets and in a real browser.

mod access;
mod browsing;
mod index;
mod pages;
mod sql_box;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Stdio};
use std::time::Duration;

use serde_json::{Value, json};

use crate::support::postgres::TestDatabase;
use crate::support::program::Program;

const LABELS: &str = "name = \"two\"\nmode = \"single\"\n\
    [[topic]]\nslug = \"gaming\"\nlabel = \"video games\"\nsubreddits = [\"gaming\"]\n\
    [[topic]]\nslug = \"food\"\nlabel = \"food and cooking\"\nsubreddits = [\"food\"]\n";

const GAME: [&str; 3] = [
    "A new boss fight",
    "Controller or keyboard",
    "Speedrun of an old game",
];
const FOOD: [&str; 3] = [
    "How long to roast a chicken",
    "Bread with rye flour",
    "A soup of beans",
];

/// Returns NDJSON of posts from two subreddits, one per hour, with ids in chronological order.
pub fn posts(n: usize) -> String {
    let post = |i: usize| {
        let is_game = i.is_multiple_of(2);
        let title = if is_game {
            GAME[i / 2 % 3]
        } else {
            FOOD[i / 2 % 3]
        };
        json!({
            "id": format!("k{i:05}"), "title": format!("{title} {i}"),
            "selftext": if i.is_multiple_of(3) { "" } else { "a body\r\nof two lines" },
            "subreddit": if is_game { "gaming" } else { "food" },
            "created_utc": 1_700_000_000 + i * 3_600, "score": i * 7 % 100, "num_comments": i,
            "permalink": format!("/r/x/comments/k{i:05}/t/"),
        })
    };
    (0..n).map(|i| format!("{}\n", post(i))).collect()
}

/// Creates a database with labelled posts.
pub fn labelled(database: &TestDatabase, posts: &str) -> Program {
    let program = Program::with_database(&database.url);
    let posts = program.write("posts.ndjson", posts);
    let labels = program.write("two.toml", LABELS);
    program.ok(&["import", &posts]);
    program.ok(&["classify", "--pipeline", &labels]);
    program
}

/// The serving program, killed when dropped.
pub struct Served {
    pub child: Child,
    pub address: SocketAddr,
}

impl Served {
    pub fn start(program: &Program) -> Self {
        Self::with(program, &[])
    }

    pub fn with(program: &Program, flags: &[&str]) -> Self {
        let args = ["serve", "--listen", "127.0.0.1:0"];
        let mut command = program.command(&[&args, flags].concat());
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let address = lines.by_ref().map_while(Result::ok).find_map(|line| {
            let (_, rest) = line.split_once("open http://")?;
            rest.split('/').next()?.parse().ok()
        });
        // Keep reading, so that its log does not fill the pipe.
        std::thread::spawn(move || lines.map_while(Result::ok).for_each(drop));
        Self {
            child,
            address: address.expect("the server prints its address"),
        }
    }

    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// Sends a request with these lines and returns the response.
    pub fn raw(&self, request: &str) -> Answer {
        let mut stream = TcpStream::connect(self.address).unwrap();
        stream
            .set_read_timeout(Some(Duration::from_mins(1)))
            .unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        let mut bytes = Vec::new();
        // A rejection before the end of a body may reset the connection.
        drop(stream.read_to_end(&mut bytes));
        let text = String::from_utf8(bytes).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
        let status = head
            .split(' ')
            .nth(1)
            .map_or(0, |code| code.parse().unwrap());
        Answer {
            status,
            head: head.to_ascii_lowercase(),
            body: body.to_owned(),
        }
    }

    pub fn ask(&self, method: &str, path: &str, headers: &str) -> Answer {
        let host = self.address;
        self.raw(&format!(
            "{method} {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n{headers}\r\n"
        ))
    }

    pub fn get(&self, path: &str) -> Answer {
        self.ask("GET", path, "")
    }

    /// Returns a page, which must have status 200.
    pub fn page(&self, path: &str) -> String {
        let answer = self.get(path);
        assert_eq!(answer.status, 200, "{path}: {}", answer.body);
        answer.body
    }

    pub fn json(&self, path: &str) -> Value {
        serde_json::from_str(&self.page(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
    }

    /// Requests a page until it is as expected, because lists show a write only after a few seconds.
    pub fn until(&self, path: &str, is_so: impl Fn(&Value) -> bool) -> Value {
        for _ in 0..300 {
            let value = self.json(path);
            if is_so(&value) {
                return value;
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        panic!("{path}: {}", self.json(path));
    }

    /// Waits until all texts are indexed.
    pub fn searched(&self, posts: u64) {
        self.until("/api/overview", |overview| {
            overview["searched"] == posts && overview["posts"] == posts
        });
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

pub struct Answer {
    pub status: u16,
    pub head: String,
    pub body: String,
}

/// Returns the fullnames on a page of the API.
pub fn names(page: &Value) -> Vec<&str> {
    let posts = page["posts"].as_array().unwrap();
    posts
        .iter()
        .map(|post| post["fullname"].as_str().unwrap())
        .collect()
}

/// Percent-encodes a string for a URL.
pub fn escaped(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02X}")).collect()
}
