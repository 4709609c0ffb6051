//! Recognises a pooler such as `PgBouncer` between this process and a PostgreSQL server, and checks whether each
//! connection through it has its own server session.
//!
//! The driver parses a statement in one transaction and runs it in the next. If a pooler used two sessions for this,
//! the second session could run a statement that another process had parsed. Therefore transaction pooling is not
//! supported.

use std::fmt::Write;
use std::time::Duration;

use sqlx::postgres::PgConnectOptions;
use sqlx::{AssertSqlSafe, ConnectOptions, Executor, PgConnection, Row};

/// Timeout for a second connection, because a session pooler may allow only one connection.
const SECOND_TIMEOUT: Duration = Duration::from_secs(5);
/// Sets a marker in a session.
const SET_MARKER: &str = "SELECT set_config('topicmill.session', gen_random_uuid()::text, false)";
const READ_MARKER: &str = "SELECT COALESCE(current_setting('topicmill.session', true), '')";

/// Returns true if the startup parameters of a connection did not reach the server. The driver sets
/// `extra_float_digits` to 2.
pub(super) async fn is_pooled_connection(connection: &mut PgConnection) -> bool {
    let digits = text(connection, "SHOW extra_float_digits").await;
    digits.is_ok_and(|digits| digits != "2")
}

/// Returns true if a pooler rejected a startup parameter that a server accepts.
pub(super) fn rejects_parameters(error: &sqlx::Error) -> bool {
    error.as_database_error().is_some_and(|error| {
        error.code().as_deref() == Some("08P01") && error.message().contains("startup parameter")
    })
}

fn is_option(parameter: &str) -> bool {
    let name = parameter.split('=').next().unwrap_or_default();
    name == "options" || name.starts_with("options[") || name.starts_with("options%5B")
}

/// Returns a URL without `options`, which poolers reject.
pub(super) fn without_options(url: &str) -> String {
    let Some((base, query)) = url.split_once('?') else {
        return url.to_owned();
    };
    let others: Vec<&str> = query.split('&').filter(|one| !is_option(one)).collect();
    format!("{base}?{}", others.join("&"))
}

/// Returns statements that set the `options` of a URL in a session.
pub(super) fn set_options(url: &str) -> String {
    let query = url.split_once('?').map_or("", |(_, query)| query);
    let options: Vec<&str> = query.split('&').filter(|one| is_option(one)).collect();
    let options = url::Url::parse(&format!("pooler:?{}", options.join("&"))).ok();
    let mut set = String::new();
    for (name, value) in options.iter().flat_map(url::Url::query_pairs) {
        let bracketed = name.strip_prefix("options[");
        match bracketed.and_then(|name| name.strip_suffix(']')) {
            Some(name) => push_setting(&mut set, name, &value),
            None => {
                for (name, value) in command_line_settings(&value) {
                    push_setting(&mut set, name, value);
                }
            }
        }
    }
    set
}

/// Parses settings as on the server's command line: `-c name=value -cname=value --name=value`.
fn command_line_settings(options: &str) -> impl Iterator<Item = (&str, &str)> {
    options.split_whitespace().filter_map(|word| {
        word.trim_start_matches("-c")
            .trim_start_matches("--")
            .split_once('=')
    })
}

/// Appends a statement that sets a setting of the session.
fn push_setting(set: &mut String, name: &str, value: &str) {
    let [name, value] = [name, value].map(|text| text.replace('\'', "''"));
    write!(set, "; SELECT set_config('{name}', '{value}', false)")
        .expect("writing to a String cannot fail");
}

/// Returns true if each connection has its own session. Also applies the settings in `session`, so that an error in
/// them is reported now.
pub(super) async fn has_own_sessions(
    first: &mut PgConnection,
    options: &PgConnectOptions,
    session: &str,
) -> sqlx::Result<bool> {
    let mut is_own = true;
    if let Ok(second) = tokio::time::timeout(SECOND_TIMEOUT, options.connect()).await {
        let mut second = second?;
        // If sessions are shared, a connection sees the other's marker, or loses its own.
        for _ in 0..3 {
            let mark = text(first, SET_MARKER).await?;
            let seen = tokio::time::timeout(SECOND_TIMEOUT, text(&mut second, READ_MARKER)).await;
            let Ok(seen) = seen else { break };
            is_own &= seen.is_ok_and(|seen| seen != mark);
            is_own &= text(first, READ_MARKER).await? == mark;
        }
        drop(sqlx::Connection::close(second).await);
    }
    if is_own {
        first.execute(AssertSqlSafe(session.to_owned())).await?;
    }
    Ok(is_own)
}

/// Queries one string with the simple protocol, which prepares no statement.
async fn text(connection: &mut PgConnection, sql: &'static str) -> sqlx::Result<String> {
    connection.fetch_one(sqlx::raw_sql(sql)).await?.try_get(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_of_a_url_are_set_after_connecting() {
        let url = "postgres://me@host/db?sslmode=require&options[search_path]=a%2Cb'c&\
                   options=-c%20work_mem%3D1MB%20--jit%3Doff";
        let bare = "postgres://me@host/db?sslmode=require";
        assert_eq!(without_options(url), bare);
        let each = [
            ("search_path", "a,b''c"),
            ("work_mem", "1MB"),
            ("jit", "off"),
        ];
        let all =
            each.map(|(name, value)| format!("; SELECT set_config('{name}', '{value}', false)"));
        assert_eq!(set_options(url), all.concat());
        assert_eq!(without_options(bare), bare);
        assert_eq!(set_options(bare), "");
    }
}
