//! Questions to PostgreSQL, each on a connection of its own, in a transaction that reads and is rolled back.
//!
//! The server first takes the statement as the query of a cursor: its grammar lets nothing stand there but SELECT,
//! VALUES, TABLE and WITH that write nothing, and the extended protocol takes no second statement behind it. EXPLAIN
//! and SHOW have no cursor; they go alone, through the same protocol, in the same transaction.

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

use super::super::failure::{is_transient, unanswered};
use super::columns::{Batches, ColumnReading, ReadStatement};
use super::gathering::Gathering;
use super::{
    Answered, Inquiry, Packing, Part, Parts, Result, SqlStore, StoreError, Table, check, names,
    refusal, whole,
};

/// Timeout for cancelling an abandoned statement.
const CANCELLING: Duration = Duration::from_secs(3);
/// A query waits for locks for as long as it may take; a signal ends it on the server.
const SETTINGS: &str = "SELECT set_config('statement_timeout', $1, false), set_config('lock_timeout', '0', false), \
     set_config('idle_in_transaction_session_timeout', \
         COALESCE($2, current_setting('idle_in_transaction_session_timeout')), false), pg_backend_pid()";
/// The server sees by itself that this process is gone; before PostgreSQL 14, and on some systems, it cannot.
const WATCH_CLIENT: &str = "SET client_connection_check_interval = '2s'";

/// Why a statement was not answered to its end.
enum Broken {
    Server(sqlx::Error),
    /// Nobody took its rows for so long.
    Untaken(Duration),
}

impl From<sqlx::Error> for Broken {
    fn from(error: sqlx::Error) -> Self {
        Self::Server(error)
    }
}

/// A role that the user is or can become, and for whom a transaction that reads is no bound: it reads and writes
/// the server's files, runs programs there, or keeps slots of replication.
const POWER: &str = "SELECT rolname::text, rolname = session_user FROM pg_roles \
     WHERE (rolsuper OR rolreplication OR rolname IN \
         ('pg_execute_server_program', 'pg_read_server_files', 'pg_write_server_files')) \
       AND pg_has_role(session_user, oid, 'MEMBER') \
     ORDER BY 2 DESC, rolsuper DESC, rolname LIMIT 1";
impl SqlStore<Postgres> {
    /// See [`crate::Store::ask`].
    pub async fn ask(&self, inquiry: Inquiry, into: Parts) -> Result<Answered> {
        check(&inquiry.sql)?;
        let stop = inquiry.stop.clone();
        // It is closed in the end: a statement can leave settings of its own behind.
        let connecting = async { self.pool.acquire().await.map(PoolConnection::detach) };
        let mut connection = tokio::select! {
            connection = connecting => connection.map_err(|error| refused(&error))?,
            () = stop.cancelled() => return Ok(Answered::Stopped),
        };
        let backend = prepare(&mut connection, inquiry.at_most, inquiry.patience)
            .await
            .map_err(|error| refused(&error))?;
        if !inquiry.any_user {
            refuse_power(&mut connection).await?;
        }
        let asked = tokio::select! {
            asked = answer(&mut connection, &inquiry, into) => asked,
            // The driver cannot end a statement, so another connection asks the server to.
            () = stop.cancelled() => {
                self.cancel(backend).await;
                return Ok(Answered::Stopped);
            }
        };
        // The server would go on until it sees that nobody listens.
        if matches!(
            asked,
            Ok(Answered::Cut | Answered::Stopped) | Err(Broken::Untaken(_))
        ) {
            self.cancel(backend).await;
        }
        // With it goes the transaction.
        drop(connection.close().await);
        asked.map_err(|error| match error {
            Broken::Server(error) => no_answer(&inquiry.sql, &error),
            Broken::Untaken(patience) => refusal(format_args!(
                "nobody read its rows for {} s, and so long it may stand in the way of others",
                patience.as_secs()
            )),
        })
    }

    /// See [`crate::Store::read`].
    pub async fn read(&self, reading: ColumnReading, into: Batches) -> Result<Answered> {
        let stop = reading.stop.clone();
        let connecting = async { self.pool.acquire().await.map(PoolConnection::detach) };
        let mut connection = tokio::select! {
            connection = connecting => connection.map_err(|error| refused(&error))?,
            () = stop.cancelled() => return Ok(Answered::Stopped),
        };
        let backend = prepare(&mut connection, None, None).await;
        let backend = backend.map_err(|error| refused(&error))?;
        if !reading.any_user {
            refuse_power(&mut connection).await?;
        }
        let ended = tokio::select! {
            ended = read(&mut connection, &reading, &into) => ended,
            () = stop.cancelled() => Ok(Answered::Stopped),
        };
        // The server would go on until it sees that nobody listens.
        if matches!(ended, Ok(Answered::Stopped)) {
            self.cancel(backend).await;
        }
        drop(connection.close().await);
        ended
    }

    /// See [`crate::Store::query`].
    pub async fn query(&self, sql: &str) -> Result<Table> {
        whole(sql, async |inquiry, into| self.ask(inquiry, into).await).await
    }

    /// Asks the server to end what a connection of this user is doing.
    async fn cancel(&self, backend: i32) {
        let cancel = sqlx::query("SELECT pg_cancel_backend($1)").bind(backend);
        let cancelled = tokio::time::timeout(CANCELLING, cancel.execute(&self.pool)).await;
        if !matches!(cancelled, Ok(Ok(_))) {
            tracing::warn!(
                backend,
                "the server did not take the request to end the query; it may run on there"
            );
        }
    }
}

/// Settings of the session, and which of the server's processes it is.
async fn prepare(
    connection: &mut PgConnection,
    at_most: Option<Duration>,
    patience: Option<Duration>,
) -> sqlx::Result<i32> {
    // This process ends the statement at its time; the server does where this process is gone.
    let at_most = at_most.map_or(0, |at_most| at_most.as_millis() + 1_000);
    let patience = patience.map(|patience| millis(patience.as_millis()));
    let row = sqlx::query(SETTINGS)
        .bind(millis(at_most))
        .bind(&patience)
        .fetch_one(&mut *connection)
        .await?;
    // Its failure is none: an old server has no such setting.
    drop(connection.execute(WATCH_CLIENT).await);
    if let Some(patience) = patience {
        // This process may stand still itself, with rows on their way to it.
        let bound = format!("SET tcp_user_timeout = {patience}");
        drop(connection.execute(AssertSqlSafe(bound)).await);
    }
    row.try_get(3)
}

/// As a setting of the server takes it, whose longest time is 24 days.
fn millis(millis: u128) -> String {
    millis.min(i32::MAX as u128).to_string()
}

async fn refuse_power(connection: &mut PgConnection) -> Result<()> {
    let power = sqlx::query_as::<_, (String, bool)>(POWER);
    let found = power.fetch_optional(connection).await;
    match found.map_err(|error| refused(&error))? {
        None => Ok(()),
        Some((role, is_user)) => Err(StoreError::Powerful {
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
    inquiry: &Inquiry,
    into: Parts,
) -> std::result::Result<Answered, Broken> {
    connection.execute("BEGIN READ ONLY").await?;
    match without_a_cursor(&inquiry.sql) {
        Some(sql) => direct(connection, sql, inquiry, &into).await,
        None => query(connection, inquiry, &into).await,
    }
}

/// One moment for all statements. The rows of a [`ColumnReading`] are asked for in the order of a key, and all of them
/// are wanted: the server, which takes two equal columns for two chances and expects a single row of a join, would sort
/// a million (19 s, 0.4 GB of temporary files) or have three processes read every post (8 s) rather than follow the
/// keys (5 s).
const BEGIN_READING: &str = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; SET LOCAL enable_sort = off; \
     SET LOCAL max_parallel_workers_per_gather = 0";

/// Reads statements in one transaction that sees one moment.
async fn read(
    connection: &mut PgConnection,
    reading: &ColumnReading,
    into: &Batches,
) -> Result<Answered> {
    let begun = connection.execute(BEGIN_READING);
    begun.await.map_err(|error| refused(&error))?;
    for (i, asked) in reading.statements.iter().enumerate() {
        let sql = &asked.sql;
        check(sql)?;
        declare(connection, sql)
            .await
            .map_err(|error| no_answer(sql, &error))?;
        // The cursor has shown that the statement reads, and that it is one. It is not read from: see `query`.
        let closed = connection.execute("CLOSE topicmill").await;
        closed.map_err(|error| refused(&error))?;
        let mut gathering = Gathering::new(i, asked);
        // By the extended protocol values come in the server's own binary form.
        let sql = AssertSqlSafe(sql.clone());
        let mut rows = sqlx::query(sql).persistent(false).fetch(&mut *connection);
        while let Some(row) = rows.try_next().await.map_err(|error| refused(&error))? {
            put_row(&mut gathering, asked, &row)?;
            if let Some(batch) = gathering.end_row()
                && into.send(batch).await.is_err()
            {
                return Ok(Answered::Stopped);
            }
        }
        // An answer without rows is one, too.
        if into.send(gathering.rest()).await.is_err() {
            return Ok(Answered::Stopped);
        }
    }
    Ok(Answered::Whole)
}

fn put_row(gathering: &mut Gathering<'_>, asked: &ReadStatement, row: &PgRow) -> Result<()> {
    for (i, kind) in asked.kinds.iter().enumerate() {
        let raw = row.try_get_raw(i).map_err(|error| refused(&error))?;
        if raw.is_null() {
            gathering.put(ColumnCell::Null)?;
            continue;
        }
        let bytes = raw.as_bytes().map_err(refusal)?;
        let type_name = raw.type_info();
        match (kind, type_name.name(), bytes) {
            (ColumnKind::Text, "TEXT" | "VARCHAR" | "NAME", bytes) => {
                gathering.put(ColumnCell::Text(&String::from_utf8_lossy(bytes)))
            }
            (ColumnKind::Hex, "BYTEA", bytes) => gathering.put_hex(bytes),
            (ColumnKind::Vector, "BYTEA", bytes) => gathering.put_vector(bytes),
            (ColumnKind::Boolean, "BOOL", [is]) => gathering.put(ColumnCell::Boolean(*is != 0)),
            (kind, name, bytes) => match (kind, name, <[u8; 8]>::try_from(bytes)) {
                (ColumnKind::Integer, "INT8", Ok(bytes)) => {
                    gathering.put(ColumnCell::Integer(i64::from_be_bytes(bytes)))
                }
                (ColumnKind::Number, "FLOAT8", Ok(bytes)) => {
                    gathering.put(ColumnCell::Number(f64::from_be_bytes(bytes)))
                }
                (ColumnKind::Time, "TIMESTAMPTZ", Ok(bytes)) => {
                    let micros = i64::from_be_bytes(bytes);
                    // `div_euclid` rounds times before 2000 down, as SQLite's texts do.
                    gathering.put(ColumnCell::Time(micros.div_euclid(1_000) + MILLIS_OF_2000))
                }
                _ => Err(gathering.wrong(name)),
            },
        }?;
    }
    if asked.list == 0 {
        return Ok(());
    }
    let raw = row.try_get_raw(asked.kinds.len());
    let raw = raw.map_err(|error| refused(&error))?;
    match raw.type_info().name() {
        _ if raw.is_null() => gathering.put_numbers(std::iter::empty()),
        "FLOAT8[]" => gathering.put_numbers(numbers(raw.as_bytes().map_err(refusal)?)),
        name => Err(gathering.wrong(name)),
    }
}

/// The server counts times from 2000 on.
const MILLIS_OF_2000: i64 = 946_684_800_000;

/// The numbers of an array as the server sends it: dimensions, whether any is NULL, the type; length and first index;
/// then each with its length before it (PostgreSQL, `array_send`).
fn numbers(bytes: &[u8]) -> impl Iterator<Item = Option<f64>> {
    // Three numbers of 4 bytes, then 2 × 4 for the one dimension; each element is 4 bytes of length and 8 of value.
    let elements = bytes.get(20..).unwrap_or_default().chunks(12);
    elements.map(|element| {
        let (length, number) = element.split_first_chunk::<4>()?;
        let number = <[u8; 8]>::try_from(number).ok()?;
        (i32::from_be_bytes(*length) == 8).then(|| f64::from_be_bytes(number))
    })
}

/// Describes a statement that the server rejected, or did not complete.
fn no_answer(sql: &str, error: &sqlx::Error) -> StoreError {
    match first_word(sql) {
        _ if unanswered(error).is_some() => refused(error),
        word if READING
            .iter()
            .any(|reading| word.eq_ignore_ascii_case(reading)) =>
        {
            refused(error)
        }
        _ => refusal(format_args!(
            "`sql` only reads: give it one statement of SELECT, VALUES, TABLE, WITH, EXPLAIN or SHOW ({})",
            message(error)
        )),
    }
}

/// First words of statements that read.
const READING: [&str; 6] = ["SELECT", "VALUES", "TABLE", "WITH", "EXPLAIN", "SHOW"];

/// The text of a statement that has no cursor, from its first word on. The server sees that same word first.
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

/// A statement without what stands before it: spaces, and comments of a line.
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

/// Runs what the server takes for the query of a cursor: one statement that reads. The cursor itself is closed again,
/// because the server shares the work of a cursor with none of its processes, and a view takes twice as long by it.
async fn query(
    connection: &mut PgConnection,
    inquiry: &Inquiry,
    into: &Parts,
) -> std::result::Result<Answered, Broken> {
    declare(connection, &inquiry.sql).await?;
    let columns = connection.prepare("FETCH 1 FROM topicmill".into_sql_str());
    let columns = columns.await?;
    connection.execute("CLOSE topicmill").await?;
    let mut packer = Packer::begin(columns.columns(), inquiry, into).await;
    // The simple protocol gives every type as text. To it these are the same words in the same order as above.
    let rows = sqlx::raw_sql(AssertSqlSafe(inquiry.sql.clone())).fetch(connection);
    match packer.take(rows).await? {
        Some(asked) => Ok(asked),
        None => packer.end().await,
    }
}

async fn declare(connection: &mut PgConnection, sql: &str) -> sqlx::Result<()> {
    // A statement with parameters, even none, goes by the extended protocol, which takes no second one behind it.
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
    inquiry: &Inquiry,
    into: &Parts,
) -> std::result::Result<Answered, Broken> {
    let statement = connection
        .prepare(AssertSqlSafe(sql).into_sql_str())
        .await?;
    let mut packer = Packer::begin(statement.columns(), inquiry, into).await;
    let rows = sqlx::query(AssertSqlSafe(sql)).fetch(connection);
    match packer.take(rows).await? {
        Some(asked) => Ok(asked),
        None => packer.end().await,
    }
}

/// Sends rows on in parts, as many as are asked for.
struct Packer<'p> {
    width: usize,
    left: u64,
    patience: Option<Duration>,
    packing: Packing,
    into: &'p Parts,
}

impl<'p> Packer<'p> {
    async fn begin(columns: &[PgColumn], inquiry: &Inquiry, into: &'p Parts) -> Self {
        let columns = names(columns.iter().map(Column::name));
        let width = columns.len();
        // That nobody listens is seen with the first rows.
        drop(into.send(Part::Columns(columns)).await);
        Self {
            width,
            left: inquiry.limit.unwrap_or(u64::MAX),
            patience: inquiry.patience,
            packing: Packing::default(),
            into,
        }
    }

    /// Takes rows; how the answer ended, if it did.
    async fn take(
        &mut self,
        mut rows: impl futures_util::Stream<Item = sqlx::Result<PgRow>> + Unpin,
    ) -> std::result::Result<Option<Answered>, Broken> {
        while let Some(row) = rows.try_next().await? {
            // Only a row beyond the limit shows that there are more, so one row more is read than is sent.
            if self.left == 0 {
                self.end().await?;
                return Ok(Some(Answered::Cut));
            }
            self.left -= 1;
            let values = (0..self.width).map(|i| value(&row, i)).collect();
            if let Some(part) = self.packing.add(values)
                && !self.send(part).await?
            {
                return Ok(Some(Answered::Stopped));
            }
        }
        Ok(None)
    }

    /// Sends rows on; false where nobody listens any more.
    async fn send(&self, part: Part) -> std::result::Result<bool, Broken> {
        let sending = self.into.send(part);
        let Some(patience) = self.patience else {
            return Ok(sending.await.is_ok());
        };
        let sent = tokio::time::timeout(patience, sending).await;
        sent.map(|sent| sent.is_ok())
            .map_err(|_| Broken::Untaken(patience))
    }

    /// Sends the last rows on. Whoever does not listen any more has all that was asked for.
    async fn end(&mut self) -> std::result::Result<Answered, Broken> {
        let rest = self.packing.rest();
        self.send(rest).await?;
        Ok(Answered::Whole)
    }
}

fn message(error: &sqlx::Error) -> String {
    match error {
        sqlx::Error::Database(database) => database.message().to_owned(),
        _ => error.to_string(),
    }
}

fn refused(error: &sqlx::Error) -> StoreError {
    match unanswered(error) {
        Some(advice) => StoreError::Unanswered {
            said: message(error),
            advice,
            is_transient: is_transient(error),
        },
        None => refusal(message(error)),
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
        // NaN and infinity, which JSON lacks, stay texts.
        "FLOAT4" | "FLOAT8" => match text.parse::<f64>() {
            Ok(number) if number.is_finite() => Value::from(number),
            _ => Value::from(text),
        },
        // As JSON reads them; NaN stays a text here, too.
        "INT2" | "INT4" | "INT8" | "NUMERIC" => {
            serde_json::from_str(text).unwrap_or_else(|_| Value::from(text))
        }
        "JSON" | "JSONB" => serde_json::from_str(text).unwrap_or_else(|_| Value::from(text)),
        "BYTEA" => Value::from(text.trim_start_matches("\\x")),
        _ => Value::from(text),
    }
}
