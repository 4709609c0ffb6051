//! Bulk inserts with few statements, in the fastest form for each database.
//!
//! The input is columns, the same for both databases. PostgreSQL gets one array per column, in a statement that never
//! changes, so it is planned once. SQLite has no arrays: it gets rows of placeholders, in statements of a few fixed
//! sizes, so each is prepared once per connection. Many rows with new keys are sent to PostgreSQL with COPY, which
//! cannot handle conflicts.

mod copy_format;

use std::ops::Range;
use std::sync::Arc;

use chrono::{DateTime, SecondsFormat, Utc};
use sqlx::postgres::PgRow;
use sqlx::sqlite::{SqliteArguments, SqliteRow};
use sqlx::{Arguments, AssertSqlSafe, Database, PgConnection, Postgres, Sqlite, SqliteConnection};
use topicmill_core::to_json;

use self::copy_format::CopyStream;

/// Rows per SQLite statement, largest first. With up to 63 columns, a statement stays within SQLite's limit of 32,766
/// parameters.
const SQLITE_ROWS: [usize; 4] = [512, 64, 8, 1];
/// Minimum number of rows in a SQLite statement in which equal values of a column share one parameter.
const SHARING_ROWS: usize = 64;

/// The values of one column, one per row.
pub enum Values<'a> {
    /// Text.
    Text(Vec<Option<&'a str>>),
    /// 64-bit integers.
    Integer(Vec<Option<i64>>),
    /// 64-bit floats.
    Real(Vec<Option<f64>>),
    /// 32-bit floats.
    Real32(Vec<Option<f32>>),
    /// Booleans.
    Flag(Vec<Option<bool>>),
    /// Byte strings.
    Bytes(Vec<&'a [u8]>),
    /// Times.
    Time(Vec<Option<DateTime<Utc>>>),
    /// Lists of 64-bit floats: arrays in PostgreSQL, JSON in SQLite.
    Reals(Vec<&'a [f64]>),
}

impl Values<'_> {
    /// Returns a column with the same integer in each row.
    pub fn repeat(value: i64, rows: usize) -> Self {
        Self::Integer(vec![Some(value); rows])
    }

    /// Returns true if all rows have the same value. Always false for floats, because 0.0 equals -0.0, and for bytes
    /// and lists.
    fn are_equal(&self) -> bool {
        fn are_equal<T: PartialEq>(values: &[T]) -> bool {
            values.iter().all(|value| *value == values[0])
        }
        match self {
            Self::Text(values) => are_equal(values),
            Self::Integer(values) => are_equal(values),
            Self::Flag(values) => are_equal(values),
            Self::Time(values) => are_equal(values),
            Self::Real(_) | Self::Real32(_) | Self::Bytes(_) | Self::Reals(_) => false,
        }
    }
}

/// Handling of existing keys by an insert.
#[derive(Clone, Copy)]
pub enum Keys {
    /// A key may exist. The clause after the rows, `ON CONFLICT …`, decides.
    MayExist(&'static str),
    /// None of the keys existed a moment ago. The insert fails with a duplicate key (see `is_duplicate_key`) if another
    /// writer has stored one of them since.
    ///
    /// The transaction must then be rolled back, because on SQLite the rows before this key remain inserted. In return,
    /// SQLite keeps no journal to undo the statement, which saves a sixth of the work. If the disk is full, SQLite
    /// rolls the transaction back itself.
    New,
}

/// Rows to insert into a table, with distinct keys.
pub struct Insert<'a> {
    /// The table.
    pub table: &'static str,
    /// Number of rows; each column has that many values.
    pub rows: usize,
    /// Columns: name and values.
    pub columns: Vec<(&'static str, Values<'a>)>,
    /// Handling of keys that exist.
    pub keys: Keys,
}

/// A database that rows can be inserted into in bulk.
pub trait BulkInsert: Database {
    /// Inserts rows in order, and returns the rows of a `RETURNING` after `ON CONFLICT`; none with [`Keys::New`].
    fn insert(
        connection: &mut Self::Connection,
        insert: Insert<'_>,
    ) -> impl Future<Output = Result<Vec<Self::Row>, sqlx::Error>> + Send;
}

impl BulkInsert for Postgres {
    async fn insert(
        connection: &mut PgConnection,
        insert: Insert<'_>,
    ) -> Result<Vec<PgRow>, sqlx::Error> {
        if insert.rows == 0 {
            return Ok(Vec::new());
        }
        let Keys::MayExist(on_conflict) = insert.keys else {
            return insert.copy_to_postgres(connection).await;
        };
        let names = insert.column_names();
        let (mut selected, mut arrays) = (Vec::new(), Vec::new());
        for (n, (name, values)) in insert.columns.iter().enumerate() {
            let (kind, cast) = match values {
                Values::Text(_) => ("TEXT", ""),
                // UNNEST would flatten an array of arrays, so lists are sent as text.
                Values::Reals(_) => ("TEXT", "::DOUBLE PRECISION[]"),
                Values::Integer(_) => ("BIGINT", ""),
                Values::Real(_) => ("DOUBLE PRECISION", ""),
                Values::Real32(_) => ("REAL", ""),
                Values::Flag(_) => ("BOOLEAN", ""),
                Values::Bytes(_) => ("BYTEA", ""),
                Values::Time(_) => ("TIMESTAMPTZ", ""),
            };
            selected.push(format!("{name}{cast}"));
            arrays.push(format!("${}::{kind}[]", n + 1));
        }
        let sql = format!(
            "INSERT INTO {} ({names}) SELECT {} FROM UNNEST({}) AS rows ({names}) {on_conflict}",
            insert.table,
            selected.join(", "),
            arrays.join(", "),
        );
        let mut query = sqlx::query(AssertSqlSafe(sql));
        for (_, values) in insert.columns {
            query = match values {
                Values::Text(values) => query.bind(values),
                Values::Integer(values) => query.bind(values),
                Values::Real(values) => query.bind(values),
                Values::Real32(values) => query.bind(values),
                Values::Flag(values) => query.bind(values),
                Values::Bytes(values) => query.bind(values),
                Values::Time(values) => query.bind(values),
                Values::Reals(lists) => {
                    // JSON numbers are valid in an array literal; only the brackets differ.
                    let array = |list: &[f64]| to_json(list).replace('[', "{").replace(']', "}");
                    query.bind(lists.into_iter().map(array).collect::<Vec<String>>())
                }
            };
        }
        query.fetch_all(connection).await
    }
}

impl BulkInsert for Sqlite {
    async fn insert(
        connection: &mut SqliteConnection,
        insert: Insert<'_>,
    ) -> Result<Vec<SqliteRow>, sqlx::Error> {
        let mut statements = SqliteStatements {
            insert: &insert,
            parts: sqlite_parts(insert.rows).into_iter(),
            rows: 0,
            shared: Vec::new(),
            text: "".into(),
        };
        let mut returned = Vec::new();
        let mut next = statements.next()?;
        while let Some((text, arguments)) = next {
            let query = sqlx::query_with(AssertSqlSafe(text), arguments);
            // SQLite runs on its own thread. While it stores one part, this thread prepares the arguments for the next.
            let (rows, prepared) = tokio::join!(query.fetch_all(&mut *connection), async {
                statements.next()
            });
            returned.extend(rows?);
            next = prepared?;
        }
        Ok(returned)
    }
}

/// The statements that insert rows into SQLite, part by part.
struct SqliteStatements<'i> {
    insert: &'i Insert<'i>,
    /// The rows of the remaining statements.
    parts: std::vec::IntoIter<Range<usize>>,
    /// Number of rows in the last statement; 0 before the first one.
    rows: usize,
    /// True for the columns of the last statement whose rows share one parameter.
    shared: Vec<bool>,
    /// SQL of the last statement.
    text: Arc<str>,
}

impl SqliteStatements<'_> {
    /// Returns the SQL and the arguments of the next statement; `None` after the last one.
    fn next(&mut self) -> Result<Option<(Arc<str>, SqliteArguments)>, sqlx::Error> {
        let Some(part) = self.parts.next() else {
            return Ok(None);
        };
        if part.len() != self.rows {
            self.rows = part.len();
            // For few rows, preparing a different statement costs more than shared parameters save.
            let is_shared =
                |(_, values): &(_, Values<'_>)| part.len() >= SHARING_ROWS && values.are_equal();
            self.shared = self.insert.columns.iter().map(is_shared).collect();
            self.text = self.insert.sqlite_text(self.rows, &self.shared).into();
        }
        let arguments = self.insert.arguments(part, &self.shared)?;
        Ok(Some((self.text.clone(), arguments)))
    }
}

impl Insert<'_> {
    /// Returns the names of the columns, separated by commas.
    fn column_names(&self) -> String {
        let names: Vec<&str> = self.columns.iter().map(|(name, _)| *name).collect();
        names.join(", ")
    }

    /// Copies the rows into a PostgreSQL table, in order. Fails if a key exists, or if a column's type differs from the
    /// type of its values.
    async fn copy_to_postgres(
        self,
        connection: &mut PgConnection,
    ) -> Result<Vec<PgRow>, sqlx::Error> {
        let copy = format!(
            "COPY {} ({}) FROM STDIN (FORMAT BINARY)",
            self.table,
            self.column_names()
        );
        let mut stream = CopyStream::new(&self.columns, self.rows);
        let mut copying = connection.copy_in_raw(&copy).await?;
        loop {
            match stream.next() {
                Ok(Some(piece)) => {
                    copying.send(piece).await?;
                }
                Ok(None) => break,
                Err(error) => {
                    copying.abort("a value cannot be written").await?;
                    return Err(error);
                }
            }
        }
        copying.finish().await?;
        Ok(Vec::new())
    }

    /// Returns an INSERT statement. A value that all rows share has only one parameter, because SQLite copies each
    /// parameter, and half of a post's values are the same in all posts in a block.
    ///
    /// sqlx binds an unnamed parameter to the next argument, and `$N` to the N-th argument.
    fn sqlite_text(&self, rows: usize, shared: &[bool]) -> String {
        let own = rows * shared.iter().filter(|shared| !**shared).count();
        let mut last = own;
        let marks: Vec<String> = shared
            .iter()
            .map(|shared| {
                if !*shared {
                    return "?".to_owned();
                }
                last += 1;
                format!("${last}")
            })
            .collect();
        let row = format!("({})", marks.join(", "));
        let values = vec![row.as_str(); rows].join(", ");
        let (verb, on_conflict) = match self.keys {
            Keys::MayExist(on_conflict) => ("INSERT", on_conflict),
            Keys::New => ("INSERT OR FAIL", ""),
        };
        let (table, names) = (self.table, self.column_names());
        format!("{verb} INTO {table} ({names}) VALUES {values} {on_conflict}")
    }

    /// Returns the arguments of a statement: each row's own values, then the values that all rows share.
    fn arguments(
        &self,
        rows: Range<usize>,
        shared: &[bool],
    ) -> Result<SqliteArguments, sqlx::Error> {
        let mut arguments = SqliteArguments::default();
        arguments.reserve(rows.len() * self.columns.len(), 0);
        // Most times in a column equal the time in the previous row, so its text is reused.
        let mut times: Vec<Option<(DateTime<Utc>, Arc<str>)>> = vec![None; self.columns.len()];
        let (common, own): (Vec<usize>, Vec<usize>) = (0..shared.len()).partition(|n| shared[*n]);
        let first = rows.start;
        let own_cells = rows.flat_map(|row| own.iter().map(move |n| (row, *n)));
        let common_cells = common.iter().map(|n| (first, *n));
        for (row, n) in own_cells.chain(common_cells) {
            let added = match &self.columns[n].1 {
                Values::Text(values) => arguments.add(values[row]),
                Values::Integer(values) => arguments.add(values[row]),
                Values::Real(values) => arguments.add(values[row]),
                Values::Real32(values) => arguments.add(values[row].map(f64::from)),
                Values::Flag(values) => arguments.add(values[row]),
                Values::Bytes(values) => arguments.add(values[row]),
                Values::Reals(lists) => arguments.add(to_json(lists[row])),
                Values::Time(values) => arguments.add(values[row].map(|time| match &times[n] {
                    Some((known, text)) if *known == time => text.clone(),
                    _ => {
                        // This is the format that sqlx uses for times.
                        let text = time.to_rfc3339_opts(SecondsFormat::AutoSi, false);
                        times[n].insert((time, text.into())).1.clone()
                    }
                })),
            };
            added.map_err(sqlx::Error::Encode)?;
        }
        Ok(arguments)
    }
}

/// Splits rows into statements of the fixed sizes: 511 rows take 21 statements, but only three distinct ones.
fn sqlite_parts(rows: usize) -> Vec<Range<usize>> {
    let mut parts = Vec::new();
    let mut start = 0;
    for size in SQLITE_ROWS {
        while rows - start >= size {
            parts.push(start..start + size);
            start += size;
        }
    }
    parts
}
