//! Answers to statements that the user wrote: columns and values of any type, as text or JSON.

use serde_json::Value;
use sqlx::{
    AssertSqlSafe, Column, Executor, Postgres, Row, SqlSafeStr, Sqlite, TypeInfo, ValueRef,
};

use super::sql::SqlStore;
use super::{Result, StoreError};

/// Rows of a query.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Table {
    /// Names of the columns, in order.
    pub columns: Vec<String>,
    /// Values, as long as `columns` each: null, boolean, number or string.
    pub rows: Vec<Vec<Value>>,
}

#[expect(clippy::needless_pass_by_value, reason = "for `map_err`")]
fn refused(error: sqlx::Error) -> StoreError {
    let text = match &error {
        sqlx::Error::Database(database) => database.message().to_owned(),
        _ => error.to_string(),
    };
    StoreError::Query(format!("run the query: {text}"))
}

impl SqlStore<Sqlite> {
    /// See [`super::Store::query`].
    pub async fn query(&self, sql: &str) -> Result<Table> {
        let sql = first_statement(sql)?;
        let mut connection = self.pool.acquire().await.map_err(refused)?;
        let statement = connection
            .prepare(AssertSqlSafe(sql).into_sql_str())
            .await
            .map_err(refused)?;
        let columns = names(sqlx::Statement::columns(&statement));
        let rows = sqlx::raw_sql(AssertSqlSafe(sql))
            .fetch_all(&mut *connection)
            .await
            .map_err(refused)?;
        let rows = rows
            .iter()
            .map(|row| (0..columns.len()).map(|i| sqlite_value(row, i)).collect())
            .collect();
        Ok(Table { columns, rows })
    }
}

fn sqlite_value(row: &sqlx::sqlite::SqliteRow, i: usize) -> Value {
    let Ok(raw) = row.try_get_raw(i) else {
        return Value::Null;
    };
    if raw.is_null() {
        return Value::Null;
    }
    // SQLite types belong to values, not to columns.
    match raw.type_info().name() {
        "BOOLEAN" => row
            .try_get_unchecked::<bool, _>(i)
            .map_or(Value::Null, Value::from),
        "INTEGER" => row
            .try_get_unchecked::<i64, _>(i)
            .map_or(Value::Null, Value::from),
        "REAL" => row
            .try_get_unchecked::<f64, _>(i)
            .map_or(Value::Null, Value::from),
        "BLOB" => row
            .try_get_unchecked::<Vec<u8>, _>(i)
            .map_or(Value::Null, |bytes| Value::from(crate::domain::hex(&bytes))),
        _ => row
            .try_get_unchecked::<String, _>(i)
            .map_or(Value::Null, Value::from),
    }
}

impl SqlStore<Postgres> {
    /// See [`super::Store::query`].
    pub async fn query(&self, sql: &str) -> Result<Table> {
        let mut connection = self.pool.acquire().await.map_err(refused)?;
        // Preparing refuses more than one statement; the simple protocol then gives every type as text.
        let statement = connection
            .prepare(AssertSqlSafe(sql).into_sql_str())
            .await
            .map_err(refused)?;
        let columns = names(sqlx::Statement::columns(&statement));
        let rows = sqlx::raw_sql(AssertSqlSafe(sql))
            .fetch_all(&mut *connection)
            .await
            .map_err(refused)?;
        let rows = rows
            .iter()
            .map(|row| (0..columns.len()).map(|i| postgres_value(row, i)).collect())
            .collect();
        Ok(Table { columns, rows })
    }
}

fn postgres_value(row: &sqlx::postgres::PgRow, i: usize) -> Value {
    let Ok(raw) = row.try_get_raw(i) else {
        return Value::Null;
    };
    let name = raw.type_info().name().to_owned();
    let Ok(text) = raw.as_str() else {
        return Value::Null;
    };
    match name.as_str() {
        "BOOL" => Value::from(text == "t"),
        "FLOAT4" | "FLOAT8" => text.parse::<f64>().map_or(Value::Null, Value::from),
        "INT2" | "INT4" | "INT8" | "NUMERIC" => {
            serde_json::from_str(text).unwrap_or_else(|_| Value::from(text))
        }
        "JSON" | "JSONB" => serde_json::from_str(text).unwrap_or_else(|_| Value::from(text)),
        "BYTEA" => Value::from(text.trim_start_matches("\\x")),
        _ => Value::from(text),
    }
}

/// Names of columns; one that is there already gets a number, so that no object loses a value.
fn names<C: Column>(columns: &[C]) -> Vec<String> {
    let mut names: Vec<String> = Vec::with_capacity(columns.len());
    for column in columns {
        let same = names.iter().filter(|name| *name == column.name()).count();
        names.push(match same {
            0 => column.name().to_owned(),
            n => format!("{}_{}", column.name(), n + 1),
        });
    }
    names
}

/// The statement, if it is the only one. SQLite would run what follows a semicolon, and report the rows of
/// both as one table.
fn first_statement(sql: &str) -> Result<&str> {
    let bytes = sql.as_bytes();
    let mut i = 0;
    let skip_to = |from: usize, end: &str| {
        sql[from..]
            .find(end)
            .map_or(sql.len(), |at| from + at + end.len())
    };
    while i < bytes.len() {
        i = match bytes[i] {
            quote @ (b'\'' | b'"' | b'`') => {
                skip_to(i + 1, (quote as char).encode_utf8(&mut [0; 4]))
            }
            b'-' if sql[i..].starts_with("--") => skip_to(i, "\n"),
            b'/' if sql[i..].starts_with("/*") => skip_to(i + 2, "*/"),
            b';' => {
                let rest = first_statement(&sql[i + 1..])?;
                return if rest.trim().is_empty() || is_comment(rest) {
                    Ok(&sql[..i])
                } else {
                    Err(StoreError::Query(
                        "run the query: give one statement at a time".into(),
                    ))
                };
            }
            _ => i + 1,
        };
    }
    Ok(sql)
}

fn is_comment(sql: &str) -> bool {
    sql.lines()
        .all(|line| line.trim().is_empty() || line.trim_start().starts_with("--"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_statement_passes_and_two_do_not() {
        for one in [
            "SELECT 1",
            "SELECT ';' ; ",
            "SELECT 1; -- done\n",
            "SELECT /* ; */ 'it''s;'",
            "SELECT \"a;b\"",
        ] {
            assert!(first_statement(one).is_ok(), "{one}");
        }
        for two in [
            "SELECT 1; DROP TABLE posts",
            "SELECT 1;;SELECT 2",
            "PRAGMA query_only=OFF; DELETE FROM posts",
        ] {
            assert!(first_statement(two).is_err(), "{two}");
        }
    }
}
