//! To a program's stdin, or to a webhook. Neither is waited for longer than was said, and no message holds its address.

use std::process::Stdio;
use std::time::Duration;

use reqwest::header::{CONTENT_TYPE, HeaderValue};
use reqwest::{Client, Url, redirect};
use tokio::io::AsyncWriteExt;
use tokio::process::{Child, Command};

use super::News;
use crate::source::http::install_tls;
use crate::store::StoreError;

/// Why nobody was told.
#[derive(Debug, thiserror::Error)]
pub enum NotifyError {
    /// The settings name nobody.
    #[error("notify nobody: set `notify.command` or `notify.webhook`")]
    Nobody,
    /// The program cannot be started.
    #[error("start `{0}` of `notify.command`: {1}; give its path, and check that it may be run")]
    Start(String, #[source] std::io::Error),
    /// The program failed.
    #[error("`{0}` of `notify.command` ended with {1}; try it by hand with a JSON object on stdin")]
    Ended(String, String),
    /// It took too long and was ended.
    #[error("{0} took longer than {1} s and was cut off")]
    TooLong(String, u64),
    /// The address is none.
    #[error("`notify.webhook` is no http or https address; its value is not shown")]
    Address,
    /// The webhook cannot be reached.
    #[error("ask the webhook on `{0}`: {1}")]
    Unreachable(String, String),
    /// The webhook refused.
    #[error("the webhook on `{0}` answered {1}: check `notify.webhook`")]
    Refused(String, u16),
    /// The database.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// How people are told.
#[derive(Clone, Default)]
pub enum Way {
    /// Nobody is told.
    #[default]
    Nobody,
    /// A program with its arguments, which reads one JSON object.
    Command(Vec<String>),
    /// An address that is posted to.
    Webhook {
        /// The address, which may hold a secret.
        url: String,
        /// Whether it wants the text alone, and not JSON.
        is_plain: bool,
    },
}

impl std::fmt::Debug for Way {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Addresses and arguments may be secrets.
        f.write_str(match self {
            Self::Nobody => "Nobody",
            Self::Command(_) => "Command",
            Self::Webhook { .. } => "Webhook",
        })
    }
}

impl Way {
    /// Posts to an address.
    ///
    /// # Errors
    /// [`NotifyError::Address`].
    pub fn webhook(url: &str, is_plain: bool) -> Result<Self, NotifyError> {
        let parsed = Url::parse(url).map_err(|_| NotifyError::Address)?;
        if !matches!(parsed.scheme(), "http" | "https") || parsed.host_str().is_none() {
            return Err(NotifyError::Address);
        }
        let url = url.to_owned();
        Ok(Self::Webhook { url, is_plain })
    }

    /// Whether nobody is told.
    pub fn is_nobody(&self) -> bool {
        matches!(self, Self::Nobody)
    }

    /// Sends, and waits until it is taken, but no longer than `longest`.
    pub(super) async fn send(&self, news: &News, longest: Duration) -> Result<(), NotifyError> {
        match self {
            Self::Nobody => Err(NotifyError::Nobody),
            Self::Command(command) => run(command, news, longest).await,
            Self::Webhook { url, is_plain } => post(url, *is_plain, news, longest).await,
        }
    }
}

async fn run(command: &[String], news: &News, longest: Duration) -> Result<(), NotifyError> {
    let Some((program, arguments)) = command.split_first() else {
        return Err(NotifyError::Nobody);
    };
    let mut command = Command::new(program);
    command
        .args(arguments)
        .stdin(Stdio::piped())
        // Stdout is for data, and stderr for log lines.
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .kill_on_drop(true);
    // What it starts ends with it, and a Ctrl-C of the terminal is not for it.
    #[cfg(unix)]
    command.process_group(0);
    let start = |error| NotifyError::Start(program.clone(), error);
    let mut child = command.spawn().map_err(start)?;
    let text = format!("{}\n", news.to_json());
    let stdin = child.stdin.take();
    let work = async {
        if let Some(mut stdin) = stdin {
            // A program that reads nothing is told by its exit status whether it is content.
            let _ = stdin.write_all(text.as_bytes()).await;
        }
        child.wait().await
    };
    let Ok(ended) = tokio::time::timeout(longest, work).await else {
        end(&mut child).await;
        let what = format!("`{program}` of `notify.command`");
        return Err(NotifyError::TooLong(what, longest.as_secs()));
    };
    let status = ended.map_err(start)?;
    if status.success() {
        return Ok(());
    }
    Err(NotifyError::Ended(program.clone(), status.to_string()))
}

/// Ends a program and all that it started.
async fn end(child: &mut Child) {
    #[cfg(unix)]
    if let Some(group) = child
        .id()
        .and_then(|id| i32::try_from(id).ok())
        .and_then(rustix::process::Pid::from_raw)
    {
        let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
    }
    let _ = child.kill().await;
}

async fn post(
    url: &str,
    is_plain: bool,
    news: &News,
    longest: Duration,
) -> Result<(), NotifyError> {
    install_tls();
    let url = Url::parse(url).map_err(|_| NotifyError::Address)?;
    // The path of a webhook is its password.
    let host = url.host_str().unwrap_or_default().to_owned();
    let failed = |error: reqwest::Error| {
        if error.is_timeout() {
            return NotifyError::TooLong(format!("the webhook on `{host}`"), longest.as_secs());
        }
        NotifyError::Unreachable(host.clone(), chain(&error.without_url()))
    };
    let client = Client::builder()
        .user_agent(concat!("topicmill/", env!("CARGO_PKG_VERSION")))
        // A webhook that leads elsewhere would take its secret along.
        .redirect(redirect::Policy::none())
        .timeout(longest)
        .build()
        .map_err(failed)?;
    let request = client.post(url);
    let request = if is_plain {
        let title = HeaderValue::from_str(&news.title);
        let title = title.unwrap_or(HeaderValue::from_static("topicmill"));
        request
            .header(CONTENT_TYPE, "text/plain; charset=utf-8")
            .header("title", title)
            .body(news.text.clone())
    } else {
        request.json(&news.to_json())
    };
    let response = request.send().await.map_err(failed)?;
    let status = response.status();
    if status.is_success() {
        Ok(())
    } else {
        Err(NotifyError::Refused(host, status.as_u16()))
    }
}

/// An error with its causes: the first one alone says only that a request failed.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}
