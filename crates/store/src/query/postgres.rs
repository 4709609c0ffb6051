//! Runs queries on PostgreSQL, each on its own connection, in a read-only transaction that is rolled back.
//!
//! The server first declares a cursor for the statement. Its grammar allows only SELECT, VALUES, TABLE and WITH there,
//! and the extended protocol allows only one statement. EXPLAIN and SHOW have no cursor; they are run alone, by the
//! extended protocol, in the same transaction.

use std::time::Duration;

use futures_util::TryStreamExt;
use serde_json::Value;
use sqlx::pool::PoolConnection;
use sqlx::postgres::{PgColumn, PgRow};
use sqlx::{
    AssertSqlSafe, Column, Connection, Executor, PgConnection, Postgres, Row, SqlSafeStr,
    Statement, TypeInfo, ValueRef,
};
use topicmill_core::{ColumnCell, ColumnKind};

use super::super::driver_error::{interruption_advice, is_transient};
use super::batch_builder::BatchBuilder;
use super::columns::{BatchSender, ColumnQuery, ColumnStatement};
use super::{
    Part, PartBuilder, PartSender, QueryEnd, QueryRequest, Result, SqlStore, StoreError, Table,
    check, collect_table, names, query_error,
};

/// Timeout for cancelling an abandoned statement.
const CANCELLING: Duration = Duration::from_secs(3);
/// Settings of the session. A query may wait for locks as long as it may run; a signal cancels it on the server.
const SETTINGS: &str = "SELECT set_config('statement_timeout', $1, false), set_config('lock_timeout', '0', false), \
     set_config('idle_in_transaction_session_timeout', \
         COALESCE($2, current_setting('idle_in_transaction_session_timeout')), false), pg_backend_pid()";
/// Makes the server detect that this process is gone. Versions before 14, and some systems, do not support it.
const WATCH_CLIENT: &str = "SET client_connection_check_interval = '2s'";

/// The reason why a statement did not complete.
enum Interrupted {
    Server(sqlx::Error),
    /// The receiver took no rows for this time.
    ReceiverTimeout(Duration),
}

impl From<sqlx::Error> for Interrupted {
    fn from(error: sqlx::Error) -> Self {
        Self::Server(error)
    }
}

/// Finds a role of the user, or one that the user can assume, which a read-only transaction does not restrict: it may
/// read and write the server's files, run programs there, or create replication slots.
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
        // Detached, and closed at the end, because a statement may change settings of its session.
        let connecting = async { self.pool.acquire().await.map(PoolConnection::detach) };
        let mut connection = tokio::select! {
            connection = connecting => connection.map_err(|error| statement_error(&error))?,
            () = stop.cancelled() => return Ok(QueryEnd::Cancelled),
        };
        let backend = prepare(&mut connection, request.timeout, request.receive_timeout)
            .await
            .map_err(|error| statement_error(&error))?;
        if !request.allow_superuser {
            reject_superuser(&mut connection).await?;
        }
        let asked = tokio::select! {
            asked = answer(&mut connection, &request, into) => asked,
            // The driver cannot cancel a statement, so another connection requests it.
            () = stop.cancelled() => {
                self.cancel(backend).await;
                return Ok(QueryEnd::Cancelled);
            }
        };
        // Otherwise the server would continue until it notices the closed connection.
        if matches!(
            asked,
            Ok(QueryEnd::Truncated | QueryEnd::Cancelled) | Err(Interrupted::ReceiverTimeout(_))
        ) {
            self.cancel(backend).await;
        }
        // Also rolls back the transaction.
        drop(connection.close().await);
        asked.map_err(|error| match error {
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
        let connecting = async { self.pool.acquire().await.map(PoolConnection::detach) };
        let mut connection = tokio::select! {
            connection = connecting => connection.map_err(|error| statement_error(&error))?,
            () = stop.cancelled() => return Ok(QueryEnd::Cancelled),
        };
        let backend = prepare(&mut connection, None, None).await;
        let backend = backend.map_err(|error| statement_error(&error))?;
        if !reading.allow_superuser {
            reject_superuser(&mut connection).await?;
        }
        let ended = tokio::select! {
            ended = read(&mut connection, &reading, &into) => ended,
            () = stop.cancelled() => Ok(QueryEnd::Cancelled),
        };
        // Otherwise the server would continue until it notices the closed connection.
        if matches!(ended, Ok(QueryEnd::Cancelled)) {
            self.cancel(backend).await;
        }
        drop(connection.close().await);
        ended
    }

    /// See [`crate::Store::query`].
    pub async fn query(&self, sql: &str) -> Result<Table> {
        collect_table(sql, async |request, into| {
            self.run_query(request, into).await
        })
        .await
    }

    /// Requests the server to cancel the statement of another connection of this user.
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

/// Applies the settings of the session, and returns the process id of its backend.
async fn prepare(
    connection: &mut PgConnection,
    timeout: Option<Duration>,
    receive_timeout: Option<Duration>,
) -> sqlx::Result<i32> {
    // This process cancels the statement in time; the server does only if this process is gone.
    let timeout = timeout.map_or(0, |timeout| timeout.as_millis() + 1_000);
    let receive_timeout =
        receive_timeout.map(|receive_timeout| millis(receive_timeout.as_millis()));
    let row = sqlx::query(SETTINGS)
        .bind(millis(timeout))
        .bind(&receive_timeout)
        .fetch_one(&mut *connection)
        .await?;
    // Errors are ignored: old servers lack this setting.
    drop(connection.execute(WATCH_CLIENT).await);
    if let Some(receive_timeout) = receive_timeout {
        // In case this process is stopped while rows are on their way to it.
        let bound = format!("SET tcp_user_timeout = {receive_timeout}");
        drop(connection.execute(AssertSqlSafe(bound)).await);
    }
    row.try_get(3)
}

/// Formats milliseconds for a setting, whose maximum is 24 days.
fn millis(millis: u128) -> String {
    millis.min(i32::MAX as u128).to_string()
}

async fn reject_superuser(connection: &mut PgConnection) -> Result<()> {
    let power = sqlx::query_as::<_, (String, bool)>(SUPERUSER_ROLE);
    let found = power.fetch_optional(connection).await;
    match found.map_err(|error| statement_error(&error))? {
        None => Ok(()),
        Some((role, is_user)) => Err(StoreError::Superuser {
            who: if is_user {
                format!("the user `{role}`")
            } else {
                format!("a user with the rights of `{role}`")
            },
        }),
    }
}

async fn answer(
    connection: &mut PgConnection,
    request: &QueryRequest,
    into: PartSender,
) -> std::result::Result<QueryEnd, Interrupted> {
    connection.execute("BEGIN READ ONLY").await?;
    match without_a_cursor(&request.sql) {
        Some(sql) => direct(connection, sql, request, &into).await,
        None => query(connection, request, &into).await,
    }
}

/// Begins a transaction with one snapshot for all statements. Each statement of a [`ColumnQuery`] returns all its rows
/// in key order. The planner expects few rows from joins on two equal columns, and would therefore sort a million rows
/// (19 s, 0.4 GB of temporary files) or read every post in three processes (8 s) instead of following the keys (5 s).
const BEGIN_READING: &str = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; SET LOCAL enable_sort = off; \
     SET LOCAL max_parallel_workers_per_gather = 0";

/// Runs statements in one transaction with one snapshot.
async fn read(
    connection: &mut PgConnection,
    reading: &ColumnQuery,
    into: &BatchSender,
) -> Result<QueryEnd> {
    let begun = connection.execute(BEGIN_READING);
    begun.await.map_err(|error| statement_error(&error))?;
    for (i, asked) in reading.statements.iter().enumerate() {
        let sql = &asked.sql;
        check(sql)?;
        declare(connection, sql)
            .await
            .map_err(|error| incomplete_error(sql, &error))?;
        // The cursor has shown that this is one statement that reads. It is not used to read: see `query`.
        let closed = connection.execute("CLOSE topicmill").await;
        closed.map_err(|error| statement_error(&error))?;
        let mut builder = BatchBuilder::new(i, asked);
        // The extended protocol returns values in binary form.
        let sql = AssertSqlSafe(sql.clone());
        let mut rows = sqlx::query(sql).persistent(false).fetch(&mut *connection);
        while let Some(row) = rows
            .try_next()
            .await
            .map_err(|error| statement_error(&error))?
        {
            put_row(&mut builder, asked, &row)?;
            if let Some(batch) = builder.end_row()
                && into.send(batch).await.is_err()
            {
                return Ok(QueryEnd::Cancelled);
            }
        }
        // A batch is sent even without rows.
        if into.send(builder.rest()).await.is_err() {
            return Ok(QueryEnd::Cancelled);
        }
    }
    Ok(QueryEnd::Complete)
}

fn put_row(builder: &mut BatchBuilder<'_>, asked: &ColumnStatement, row: &PgRow) -> Result<()> {
    for (i, kind) in asked.kinds.iter().enumerate() {
        let raw = row
            .try_get_raw(i)
            .map_err(|error| statement_error(&error))?;
        if raw.is_null() {
            builder.put(ColumnCell::Null)?;
            continue;
        }
        let bytes = raw.as_bytes().map_err(query_error)?;
        let type_name = raw.type_info();
        match (kind, type_name.name(), bytes) {
            (ColumnKind::Text, "TEXT" | "VARCHAR" | "NAME", bytes) => {
                builder.put(ColumnCell::Text(&String::from_utf8_lossy(bytes)))
            }
            (ColumnKind::Hex, "BYTEA", bytes) => builder.put_hex(bytes),
            (ColumnKind::Vector, "BYTEA", bytes) => builder.put_vector(bytes),
            (ColumnKind::Boolean, "BOOL", [is]) => builder.put(ColumnCell::Boolean(*is != 0)),
            (kind, name, bytes) => match (kind, name, <[u8; 8]>::try_from(bytes)) {
                (ColumnKind::Integer, "INT8", Ok(bytes)) => {
                    builder.put(ColumnCell::Integer(i64::from_be_bytes(bytes)))
                }
                (ColumnKind::Number, "FLOAT8", Ok(bytes)) => {
                    builder.put(ColumnCell::Number(f64::from_be_bytes(bytes)))
                }
                (ColumnKind::Time, "TIMESTAMPTZ", Ok(bytes)) => {
                    let micros = i64::from_be_bytes(bytes);
                    // `div_euclid` rounds times before 2000 down, as for SQLite.
                    builder.put(ColumnCell::Time(micros.div_euclid(1_000) + MILLIS_OF_2000))
                }
                _ => Err(builder.wrong(name)),
            },
        }?;
    }
    if asked.list == 0 {
        return Ok(());
    }
    let raw = row.try_get_raw(asked.kinds.len());
    let raw = raw.map_err(|error| statement_error(&error))?;
    match raw.type_info().name() {
        _ if raw.is_null() => builder.put_numbers(std::iter::empty()),
        "FLOAT8[]" => builder.put_numbers(numbers(raw.as_bytes().map_err(query_error)?)),
        name => Err(builder.wrong(name)),
    }
}

/// Milliseconds between the Unix epoch and 2000, from which the server counts times.
const MILLIS_OF_2000: i64 = 946_684_800_000;

/// Parses an array in the server's binary form: number of dimensions, null flag and type; length and first index; then
/// each element after its length (PostgreSQL, `array_send`).
fn numbers(bytes: &[u8]) -> impl Iterator<Item = Option<f64>> {
    // Three numbers of 4 bytes, then 2 × 4 bytes for the dimension; each element has 4 bytes of length and 8 of value.
    let elements = bytes.get(20..).unwrap_or_default().chunks(12);
    elements.map(|element| {
        let (length, number) = element.split_first_chunk::<4>()?;
        let number = <[u8; 8]>::try_from(number).ok()?;
        (i32::from_be_bytes(*length) == 8).then(|| f64::from_be_bytes(number))
    })
}

/// Returns the error for a statement that the server rejected or did not complete.
fn incomplete_error(sql: &str, error: &sqlx::Error) -> StoreError {
    match first_word(sql) {
        _ if interruption_advice(error).is_some() => statement_error(error),
        word if READING
            .iter()
            .any(|reading| word.eq_ignore_ascii_case(reading)) =>
        {
            statement_error(error)
        }
        _ => query_error(format_args!(
            "`sql` only reads: give it one statement of SELECT, VALUES, TABLE, WITH, EXPLAIN or SHOW ({})",
            message(error)
        )),
    }
}

/// The first words of statements that read.
const READING: [&str; 6] = ["SELECT", "VALUES", "TABLE", "WITH", "EXPLAIN", "SHOW"];

/// Returns a statement that has no cursor, from its first word on, so that the server sees that word first.
fn without_a_cursor(sql: &str) -> Option<&str> {
    let sql = uncommented(sql);
    let word = first_word(sql);
    ["EXPLAIN", "SHOW"]
        .iter()
        .any(|alone| word.eq_ignore_ascii_case(alone))
        .then_some(sql)
}

fn first_word(sql: &str) -> &str {
    let sql = uncommented(sql).trim_start_matches('(');
    let sql = uncommented(sql);
    let end = sql.find(|c: char| !c.is_alphanumeric() && c != '_' && c != '$');
    &sql[..end.unwrap_or(sql.len())]
}

/// Removes spaces and line comments at the start of a statement.
fn uncommented(sql: &str) -> &str {
    let mut rest = sql.trim_start();
    while let Some(comment) = rest.strip_prefix("--") {
        rest = comment
            .split_once('\n')
            .map_or("", |(_, rest)| rest)
            .trim_start();
    }
    rest
}

/// Runs one statement that reads, which a cursor verifies. The cursor is then closed, because the server does not
/// parallelise cursors, so that a view would take twice as long.
async fn query(
    connection: &mut PgConnection,
    request: &QueryRequest,
    into: &PartSender,
) -> std::result::Result<QueryEnd, Interrupted> {
    declare(connection, &request.sql).await?;
    let columns = connection.prepare("FETCH 1 FROM topicmill".into_sql_str());
    let columns = columns.await?;
    connection.execute("CLOSE topicmill").await?;
    let mut writer = PartWriter::begin(columns.columns(), request, into).await;
    // The simple protocol returns every type as text. The text of the statement is the one that the cursor verified.
    let rows = sqlx::raw_sql(AssertSqlSafe(request.sql.clone())).fetch(connection);
    match writer.take(rows).await? {
        Some(asked) => Ok(asked),
        None => writer.end().await,
    }
}

async fn declare(connection: &mut PgConnection, sql: &str) -> sqlx::Result<()> {
    // A statement with parameters, even none, uses the extended protocol, which allows no second statement.
    let declare = format!("DECLARE topicmill NO SCROLL CURSOR FOR {sql}");
    sqlx::query(AssertSqlSafe(declare))
        .persistent(false)
        .execute(connection)
        .await?;
    Ok(())
}

async fn direct(
    connection: &mut PgConnection,
    sql: &str,
    request: &QueryRequest,
    into: &PartSender,
) -> std::result::Result<QueryEnd, Interrupted> {
    let statement = connection
        .prepare(AssertSqlSafe(sql).into_sql_str())
        .await?;
    let mut writer = PartWriter::begin(statement.columns(), request, into).await;
    let rows = sqlx::query(AssertSqlSafe(sql)).fetch(connection);
    match writer.take(rows).await? {
        Some(asked) => Ok(asked),
        None => writer.end().await,
    }
}

/// Sends rows in parts, up to the limit.
struct PartWriter<'p> {
    width: usize,
    left: u64,
    receive_timeout: Option<Duration>,
    builder: PartBuilder,
    into: &'p PartSender,
}

impl<'p> PartWriter<'p> {
    async fn begin(columns: &[PgColumn], request: &QueryRequest, into: &'p PartSender) -> Self {
        let columns = names(columns.iter().map(Column::name));
        let width = columns.len();
        // A dropped receiver is noticed with the first rows.
        drop(into.send(Part::Columns(columns)).await);
        Self {
            width,
            left: request.limit.unwrap_or(u64::MAX),
            receive_timeout: request.receive_timeout,
            builder: PartBuilder::default(),
            into,
        }
    }

    /// Sends rows; returns the end of the query if it was reached early.
    async fn take(
        &mut self,
        mut rows: impl futures_util::Stream<Item = sqlx::Result<PgRow>> + Unpin,
    ) -> std::result::Result<Option<QueryEnd>, Interrupted> {
        while let Some(row) = rows.try_next().await? {
            // One more row than the limit is read, to find out whether there are more.
            if self.left == 0 {
                self.end().await?;
                return Ok(Some(QueryEnd::Truncated));
            }
            self.left -= 1;
            let values = (0..self.width).map(|i| value(&row, i)).collect();
            if let Some(part) = self.builder.add(values)
                && !self.send(part).await?
            {
                return Ok(Some(QueryEnd::Cancelled));
            }
        }
        Ok(None)
    }

    /// Sends a part; false if the receiver was dropped.
    async fn send(&self, part: Part) -> std::result::Result<bool, Interrupted> {
        let sending = self.into.send(part);
        let Some(receive_timeout) = self.receive_timeout else {
            return Ok(sending.await.is_ok());
        };
        let sent = tokio::time::timeout(receive_timeout, sending).await;
        sent.map(|sent| sent.is_ok())
            .map_err(|_| Interrupted::ReceiverTimeout(receive_timeout))
    }

    /// Sends the last rows. A dropped receiver is not an error here.
    async fn end(&mut self) -> std::result::Result<QueryEnd, Interrupted> {
        let rest = self.builder.rest();
        self.send(rest).await?;
        Ok(QueryEnd::Complete)
    }
}

fn message(error: &sqlx::Error) -> String {
    match error {
        sqlx::Error::Database(database) => database.message().to_owned(),
        _ => error.to_string(),
    }
}

fn statement_error(error: &sqlx::Error) -> StoreError {
    match interruption_advice(error) {
        Some(advice) => StoreError::QueryInterrupted {
            message: message(error),
            advice,
            is_transient: is_transient(error),
        },
        None => query_error(message(error)),
    }
}

fn value(row: &PgRow, i: usize) -> Value {
    let Ok(raw) = row.try_get_raw(i) else {
        return Value::Null;
    };
    let Ok(text) = raw.as_str() else {
        return Value::Null;
    };
    match raw.type_info().name() {
        "BOOL" => Value::from(text == "t"),
        // NaN and infinity are not JSON numbers, and stay text.
        "FLOAT4" | "FLOAT8" => match text.parse::<f64>() {
            Ok(number) if number.is_finite() => Value::from(number),
            _ => Value::from(text),
        },
        // JSON numbers; NaN stays text here too.
        "INT2" | "INT4" | "INT8" | "NUMERIC" => {
            serde_json::from_str(text).unwrap_or_else(|_| Value::from(text))
        }
        "JSON" | "JSONB" => serde_json::from_str(text).unwrap_or_else(|_| Value::from(text)),
        "BYTEA" => Value::from(text.trim_start_matches("\\x")),
        _ => Value::from(text),
    }
}
