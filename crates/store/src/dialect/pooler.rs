//! A pooler between this process and a PostgreSQL server, such as `PgBouncer`: how it is recognized, and whether a
//! connection through it has a session of the server to itself.
//!
//! The driver parses a statement in one transaction and runs it in the next one, by a name or by none: if these went to
//! two sessions, the second could run what another process parsed there. So a pool by transactions cannot be used.

use std::fmt::Write;
use std::time::Duration;

use sqlx::postgres::PgConnectOptions;
use sqlx::{AssertSqlSafe, ConnectOptions, Executor, PgConnection, Row};

/// Timeout of a second connection; a session pooler may have only one to give.
const SECOND: Duration = Duration::from_secs(5);
/// The marker of a session.
const MARK: &str = "SELECT set_config('topicmill.session', gen_random_uuid()::text, false)";
const MARKED: &str = "SELECT COALESCE(current_setting('topicmill.session', true), '')";

/// Returns true if a connection's parameters did not reach the server: the driver asks for 2 digits more.
pub(super) async fn is_between(connection: &mut PgConnection) -> bool {
    let digits = text(connection, "SHOW extra_float_digits").await;
    digits.is_ok_and(|digits| digits != "2")
}

/// Returns true if a pooler rejected a connection for a parameter that a server takes.
pub(super) fn has_refused(error: &sqlx::Error) -> bool {
    error.as_database_error().is_some_and(|error| {
        error.code().as_deref() == Some("08P01") && error.message().contains("startup parameter")
    })
}

/// Splits a URL into one without `options`, which a pooler does not take, and the statements that set them.
pub(super) fn apart(url: &str) -> (String, String) {
    let Some((base, query)) = url.split_once('?') else {
        return (url.to_owned(), String::new());
    };
    let is_option = |part: &&str| {
        let name = part.split('=').next().unwrap_or_default();
        name == "options" || name.starts_with("options[") || name.starts_with("options%5B")
    };
    let (options, others): (Vec<&str>, Vec<&str>) = query.split('&').partition(is_option);
    let mut set = String::new();
    let mut add = |name: &str, value: &str| {
        let [name, value] = [name, value].map(|text| text.replace('\'', "''"));
        write!(set, "; SELECT set_config('{name}', '{value}', false)").expect("a String has room");
    };
    let options = format!("pooler:?{}", options.join("&"));
    let options = url::Url::parse(&options).ok();
    for (name, value) in options.iter().flat_map(url::Url::query_pairs) {
        match name
            .strip_prefix("options[")
            .and_then(|name| name.strip_suffix(']'))
        {
            Some(name) => add(name, &value),
            // `-c name=value -cname=value --name=value`
            None => value
                .split_whitespace()
                .filter_map(|word| {
                    word.trim_start_matches("-c")
                        .trim_start_matches("--")
                        .split_once('=')
                })
                .for_each(|(name, value)| add(name, value)),
        }
    }
    (format!("{base}?{}", others.join("&")), set)
}

/// Returns true if each connection has a session of its own. Sets `session`, so that a mistake in it is found at once.
pub(super) async fn check(
    one: &mut PgConnection,
    options: &PgConnectOptions,
    session: &str,
) -> sqlx::Result<bool> {
    let mut is_own = true;
    if let Ok(other) = tokio::time::timeout(SECOND, options.connect()).await {
        let mut other = other?;
        // A pool that takes turns would show it by the one's own mark, and another by the other's.
        for _ in 0..3 {
            let mark = text(one, MARK).await?;
            let seen = tokio::time::timeout(SECOND, text(&mut other, MARKED)).await;
            let Ok(seen) = seen else { break };
            is_own &= seen.is_ok_and(|seen| seen != mark);
            is_own &= text(one, MARKED).await? == mark;
        }
        drop(sqlx::Connection::close(other).await);
    }
    if is_own {
        one.execute(AssertSqlSafe(session.to_owned())).await?;
    }
    Ok(is_own)
}

/// A text, by the simple protocol, which prepares nothing.
async fn text(connection: &mut PgConnection, sql: &'static str) -> sqlx::Result<String> {
    connection.fetch_one(sqlx::raw_sql(sql)).await?.try_get(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_of_a_url_are_set_after_connecting() {
        let (bare, set) = apart(
            "postgres://me@host/db?sslmode=require&options[search_path]=a%2Cb'c&options=-c%20work_mem%3D1MB%20--jit%3Doff",
        );
        assert_eq!(bare, "postgres://me@host/db?sslmode=require");
        let each = [
            ("search_path", "a,b''c"),
            ("work_mem", "1MB"),
            ("jit", "off"),
        ];
        let all =
            each.map(|(name, value)| format!("; SELECT set_config('{name}', '{value}', false)"));
        assert_eq!(set, all.concat());
        assert_eq!(
            apart("postgres://host/db"),
            ("postgres://host/db".into(), String::new())
        );
    }
}
