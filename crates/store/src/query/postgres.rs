//! Runs queries on PostgreSQL, each on its own connection, in a read-only transaction that is rolled back.
//!
//! First, a cursor is declared for the statement. The grammar of DECLARE allows only SELECT, VALUES, TABLE and WITH,
//! and the extended protocol allows only one statement. EXPLAIN and SHOW cannot have a cursor. They are run alone, with
//! the extended protocol, in the same transaction.

mod columns;
mod parts;

use std::convert::Infallible;
use std::time::Duration;

use sqlx::pool::PoolConnection;
use sqlx::{
    AssertSqlSafe, Connection, Executor, PgConnection, Postgres, Row, SqlSafeStr, Statement,
};

use self::parts::{Interrupted, PartWriter};
use super::columns::{BatchSender, ColumnQuery};
use super::{PartSender, QueryEnd, QueryRequest, Result, SqlStore, StoreError, check, query_error};
use crate::dialect::Dialect;
use crate::driver_error::{interruption_advice, is_busy, is_transient};
use crate::lock_wait::{NOTICE, log_holder};

/// The operation in messages.
const WHAT: &str = "run the query";
/// Time limit for requesting that the server cancel a statement.
const CANCELLING: Duration = Duration::from_secs(3);
/// Session settings. A query may wait for locks for five minutes, as other statements do; a signal cancels it on the
/// server.
const SETTINGS: &str = "SELECT set_config('statement_timeout', $1, false), set_config('lock_timeout', '300000', false), \
     set_config('idle_in_transaction_session_timeout', \
         COALESCE($2, current_setting('idle_in_transaction_session_timeout')), false), pg_backend_pid()";
/// Makes the server detect that this process is gone. Versions before 14, and some systems, do not support it.
const WATCH_CLIENT: &str = "SET client_connection_check_interval = '2s'";

/// Query for a role that the user has or can assume, and that a read-only transaction does not restrict, because it can
/// read or write the server's files, run programs there, or create replication slots.
const SUPERUSER_ROLE: &str = "SELECT rolname::text, rolname = session_user FROM pg_roles \
     WHERE (rolsuper OR rolreplication OR rolname IN \
         ('pg_execute_server_program', 'pg_read_server_files', 'pg_write_server_files')) \
       AND pg_has_role(session_user, oid, 'MEMBER') \
     ORDER BY 2 DESC, rolsuper DESC, rolname LIMIT 1";

impl SqlStore<Postgres> {
    /// See [`crate::Store::run_query`].
    pub async fn run_query(&self, request: QueryRequest, into: PartSender) -> Result<QueryEnd> {
        check(&request.sql)?;
        let stop = request.stop.clone();
        let Some((mut connection, backend)) = self.connect(&request).await? else {
            return Ok(QueryEnd::Cancelled);
        };
        let end = tokio::select! {
            end = run_statement(&mut connection, &request, into) => end,
            never = self.log_holders(backend) => match never {},
            // The driver cannot cancel a statement, so another connection requests the cancellation.
            () = stop.cancelled() => {
                self.cancel(backend).await;
                return Ok(QueryEnd::Cancelled);
            }
        };
        // Otherwise the server would continue until it notices the closed connection.
        if matches!(
            end,
            Ok(QueryEnd::Truncated | QueryEnd::Cancelled) | Err(Interrupted::ReceiverTimeout(_))
        ) {
            self.cancel(backend).await;
        }
        // Also rolls back the transaction.
        drop(connection.close().await);
        end.map_err(|error| match error {
            Interrupted::Server(error) => incomplete_error(&request.sql, &error),
            Interrupted::ReceiverTimeout(receive_timeout) => query_error(format_args!(
                "its rows were not read for {} s, and a running query may block others; read them faster",
                receive_timeout.as_secs()
            )),
        })
    }

    /// See [`crate::Store::read_columns`].
    pub async fn read_columns(&self, reading: ColumnQuery, into: BatchSender) -> Result<QueryEnd> {
        let stop = reading.stop.clone();
        let request = QueryRequest {
            allow_superuser: reading.allow_superuser,
            stop: stop.clone(),
            ..QueryRequest::default()
        };
        let Some((mut connection, backend)) = self.connect(&request).await? else {
            return Ok(QueryEnd::Cancelled);
        };
        let ended = tokio::select! {
            ended = columns::read(&mut connection, &reading, &into) => ended,
            never = self.log_holders(backend) => match never {},
            () = stop.cancelled() => Ok(QueryEnd::Cancelled),
        };
        // Otherwise the server would continue until it notices the closed connection.
        if matches!(ended, Ok(QueryEnd::Cancelled)) {
            self.cancel(backend).await;
        }
        drop(connection.close().await);
        ended
    }

    /// Opens and prepares a session for a request. Returns it with the process id of its backend, or `None` if the
    /// request was cancelled.
    async fn connect(&self, request: &QueryRequest) -> Result<Option<(PgConnection, i32)>> {
        // Detached, and closed at the end, because a statement may change its session's settings.
        let connecting = async { self.pool.acquire().await.map(PoolConnection::detach) };
        let mut connection = tokio::select! {
            connection = connecting => connection.map_err(|error| statement_error(&error))?,
            () = request.stop.cancelled() => return Ok(None),
        };
        let backend = prepare(&mut connection, request.timeout, request.receive_timeout)
            .await
            .map_err(|error| statement_error(&error))?;
        if !request.allow_superuser {
            reject_superuser(&mut connection).await?;
        }
        Ok(Some((connection, backend)))
    }

    /// Logs once who holds a lock that the session `backend` is waiting for.
    #[expect(clippy::disallowed_methods, reason = "other sessions take real time")]
    async fn log_holders(&self, backend: i32) -> Infallible {
        loop {
            tokio::time::sleep(NOTICE).await;
            if let Some(holder) = Postgres::lock_holder(&self.pool, Some(backend)).await {
                log_holder(WHAT, &holder);
                std::future::pending::<()>().await;
            }
        }
    }

    /// Requests that the server cancel the statement that another connection of this user is running.
    async fn cancel(&self, backend: i32) {
        let cancel = sqlx::query("SELECT pg_cancel_backend($1)").bind(backend);
        let cancelled = tokio::time::timeout(CANCELLING, cancel.execute(&self.pool)).await;
        if !matches!(cancelled, Ok(Ok(_))) {
            tracing::warn!(
                backend,
                "could not cancel the query on the server; it may continue to run there"
            );
        }
    }
}

/// Applies the session settings and returns the process id of the session's backend.
async fn prepare(
    connection: &mut PgConnection,
    timeout: Option<Duration>,
    receive_timeout: Option<Duration>,
) -> sqlx::Result<i32> {
    // This process cancels the statement at its timeout. The server cancels it later, if this process is gone.
    let timeout = timeout.map_or(0, |timeout| timeout.as_millis() + 1_000);
    let receive_timeout =
        receive_timeout.map(|receive_timeout| millis(receive_timeout.as_millis()));
    let settings = sqlx::query(SETTINGS).bind(millis(timeout));
    let settings = settings.bind(&receive_timeout);
    let row = settings.fetch_one(&mut *connection).await?;
    // Errors are ignored: old servers lack this setting.
    drop(connection.execute(WATCH_CLIENT).await);
    if let Some(receive_timeout) = receive_timeout {
        // Ends the session if this process is suspended while rows are being sent to it.
        let setting = format!("SET tcp_user_timeout = {receive_timeout}");
        drop(connection.execute(AssertSqlSafe(setting)).await);
    }
    row.try_get(3)
}

/// Formats milliseconds for a setting, whose maximum is 24 days.
fn millis(millis: u128) -> String {
    millis.min(i32::MAX as u128).to_string()
}

/// Rejects a user whom a read-only transaction does not restrict.
async fn reject_superuser(connection: &mut PgConnection) -> Result<()> {
    let roles = sqlx::query_as::<_, (String, bool)>(SUPERUSER_ROLE);
    let found = roles.fetch_optional(connection).await;
    match found.map_err(|error| statement_error(&error))? {
        None => Ok(()),
        Some((role, is_user)) => Err(StoreError::Superuser {
            who: if is_user {
                format!("the user `{role}`")
            } else {
                format!("a user with the privileges of `{role}`")
            },
        }),
    }
}

async fn run_statement(
    connection: &mut PgConnection,
    request: &QueryRequest,
    into: PartSender,
) -> std::result::Result<QueryEnd, Interrupted> {
    connection.execute("BEGIN READ ONLY").await?;
    match without_a_cursor(&request.sql) {
        Some(sql) => run_directly(connection, sql, request, &into).await,
        None => run_query(connection, request, &into).await,
    }
}

/// Returns the error for a statement that the server rejected or did not complete.
fn incomplete_error(sql: &str, error: &sqlx::Error) -> StoreError {
    let word = first_word(sql);
    let reads = READING.iter().any(|known| word.eq_ignore_ascii_case(known));
    if reads || interruption_advice(error).is_some() {
        return statement_error(error);
    }
    query_error(format_args!(
        "`sql` only reads: pass one SELECT, VALUES, TABLE, WITH, EXPLAIN or SHOW statement ({})",
        message(error)
    ))
}

/// The first words of statements that read.
const READING: [&str; 6] = ["SELECT", "VALUES", "TABLE", "WITH", "EXPLAIN", "SHOW"];

/// Returns the statement without leading comments if it cannot have a cursor: EXPLAIN or SHOW.
fn without_a_cursor(sql: &str) -> Option<&str> {
    let sql = uncommented(sql);
    let word = first_word(sql);
    let is_word = |known: &&str| word.eq_ignore_ascii_case(known);
    ["EXPLAIN", "SHOW"].iter().any(is_word).then_some(sql)
}

fn first_word(sql: &str) -> &str {
    let sql = uncommented(sql).trim_start_matches('(');
    let sql = uncommented(sql);
    let end = sql.find(|c: char| !c.is_alphanumeric() && c != '_' && c != '$');
    &sql[..end.unwrap_or(sql.len())]
}

/// Removes spaces and comments at the start of a statement.
fn uncommented(sql: &str) -> &str {
    let mut rest = sql.trim_start();
    loop {
        let end = match rest.get(..2) {
            Some("--") => "\n",
            Some("/*") => "*/",
            _ => return rest,
        };
        let after = rest[2..].split_once(end).map_or("", |(_, after)| after);
        rest = after.trim_start();
    }
}

/// Runs one statement, after a cursor has verified that it reads. The cursor is closed unused, because the server does
/// not parallelise cursors, and a view would take twice as long.
async fn run_query(
    connection: &mut PgConnection,
    request: &QueryRequest,
    into: &PartSender,
) -> std::result::Result<QueryEnd, Interrupted> {
    declare(connection, &request.sql).await?;
    let cursor = "FETCH 1 FROM topicmill".into_sql_str();
    let fetch = connection.prepare(cursor).await?;
    connection.execute("CLOSE topicmill").await?;
    let writer = PartWriter::begin(fetch.columns(), request, into).await;
    // The simple protocol returns every type as text. The statement is exactly the one that the cursor verified.
    let rows = sqlx::raw_sql(AssertSqlSafe(request.sql.clone())).fetch(connection);
    writer.send_rows(rows).await
}

/// Declares a cursor for the statement, which the server rejects unless it is one statement that reads.
async fn declare(connection: &mut PgConnection, sql: &str) -> sqlx::Result<()> {
    // `sqlx::query` uses the extended protocol even without parameters, and this protocol allows only one statement.
    let declare = format!("DECLARE topicmill NO SCROLL CURSOR FOR {sql}");
    sqlx::query(AssertSqlSafe(declare))
        .persistent(false)
        .execute(connection)
        .await?;
    Ok(())
}

/// Runs a statement that has no cursor.
async fn run_directly(
    connection: &mut PgConnection,
    sql: &str,
    request: &QueryRequest,
    into: &PartSender,
) -> std::result::Result<QueryEnd, Interrupted> {
    let statement = connection
        .prepare(AssertSqlSafe(sql).into_sql_str())
        .await?;
    let writer = PartWriter::begin(statement.columns(), request, into).await;
    let rows = sqlx::query(AssertSqlSafe(sql)).fetch(connection);
    writer.send_rows(rows).await
}

fn message(error: &sqlx::Error) -> String {
    match error {
        sqlx::Error::Database(database) => database.message().to_owned(),
        _ => error.to_string(),
    }
}

fn statement_error(error: &sqlx::Error) -> StoreError {
    if is_busy(error) {
        return StoreError::locked(WHAT, None);
    }
    match interruption_advice(error) {
        Some(advice) => StoreError::QueryInterrupted {
            message: message(error),
            advice,
            is_transient: is_transient(error),
        },
        None => query_error(message(error)),
    }
}
