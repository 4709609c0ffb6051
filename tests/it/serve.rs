//! Tests `topicmill serve`: pages, through real sockets and in a real browser.

mod access;
mod browsing;
mod pages;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command};
use std::time::Duration;

use serde_json::json;

use crate::support::builders::LABELS;
use crate::support::program::{Program, start_server};

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

/// Imports posts, and labels them with `two.toml`.
pub fn labelled(program: Program, posts: &str) -> Program {
    program.import(posts);
    program.pipeline("two", "", &LABELS[..2]);
    program.ok("classify --pipeline two.toml");
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
        Self::of(program.command(&[&args, flags].concat()))
    }

    pub fn of(command: Command) -> Self {
        let (child, address) = start_server(command, "open http://");
        Self { child, address }
    }

    /// Starts a server with the review page.
    pub fn review(program: &Program, flags: &[&str]) -> Self {
        Self::with(
            program,
            &[&["--review", "--annotator", "ada"], flags].concat(),
        )
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

    /// Sends a form.
    pub fn send(&self, path: &str, form: &[(&str, &str)], headers: &str) -> Answer {
        let pairs = form
            .iter()
            .map(|(name, value)| format!("{name}={}", escaped(value)));
        let body = pairs.collect::<Vec<_>>().join("&");
        self.raw(&format!(
            "POST {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n{headers}Content-Length: {}\r\n\
             Content-Type: application/x-www-form-urlencoded\r\n\r\n{body}",
            self.address,
            body.len()
        ))
    }

    /// Sends a form as a browser does; returns the status and the next page.
    pub fn post(&self, path: &str, form: &[(&str, &str)], headers: &str) -> (u16, String) {
        let answer = self.send(path, form, headers);
        let answer = match answer.head.split_once("\r\nlocation: ") {
            Some((_, to)) => self.get(&resolved(to.lines().next().unwrap())),
            None => answer,
        };
        (answer.status, answer.body)
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

/// Returns the path of a relative link: all pages are at the top, or one level below.
pub fn resolved(link: &str) -> String {
    assert!(link.starts_with('.'), "{link}");
    format!("/{}", link.trim_start_matches(['.', '/']))
}

/// Returns the fullnames in the list on a page.
pub fn names(page: &str) -> Vec<String> {
    let titles = page.split("class=\"title post\" href=\"./posts/").skip(1);
    let names = titles.map(|rest| rest.split('"').next().unwrap().to_owned());
    names.collect()
}

/// Percent-encodes a string for a URL.
pub fn escaped(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02X}")).collect()
}
