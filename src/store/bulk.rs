//! Many rows into a table with few statements, in the form that each database takes fastest.
//!
//! What enters are columns: the same values in both databases. PostgreSQL gets one array a column and one
//! statement, whose text is always the same, so that it is planned once. SQLite has no arrays: it gets rows
//! of placeholders, in statements of a few fixed sizes, so that each is prepared once a connection. Many rows whose keys
//! are new go to PostgreSQL by COPY, which looks for no conflict.

mod wire;

use std::fmt::Write;
use std::ops::Range;
use std::sync::Arc;

use chrono::{DateTime, SecondsFormat, Utc};
use sqlx::sqlite::SqliteArguments;
use sqlx::{Arguments, AssertSqlSafe, PgConnection, SqliteConnection};

use self::wire::Pieces;

/// Rows of one statement of SQLite, the largest first: with at most 63 columns its 32,766 parameters are not
/// exceeded.
const SQLITE_ROWS: [usize; 4] = [512, 64, 8, 1];

/// The values of one column, one a row.
pub enum Values<'a> {
    /// Texts.
    Text(Vec<Option<&'a str>>),
    /// Whole numbers.
    Integer(Vec<Option<i64>>),
    /// Numbers.
    Real(Vec<Option<f64>>),
    /// Numbers of 32 bits.
    Short(Vec<Option<f32>>),
    /// Yes or no.
    Flag(Vec<bool>),
    /// Bytes.
    Bytes(Vec<&'a [u8]>),
    /// Times.
    Time(Vec<Option<DateTime<Utc>>>),
    /// Lists of numbers: arrays in PostgreSQL, JSON in SQLite.
    Reals(Vec<&'a [f64]>),
}

impl Values<'_> {
    /// The same number in each row.
    pub fn all(value: i64, rows: usize) -> Self {
        Self::Integer(vec![Some(value); rows])
    }
}

/// Rows that go into a table. None of them may have the key of another one.
pub struct Insert<'a> {
    /// The table.
    pub table: &'static str,
    /// How many rows; each column has as many values.
    pub rows: usize,
    /// Names and values.
    pub columns: Vec<(&'static str, Values<'a>)>,
    /// What follows the rows: `ON CONFLICT …`.
    pub on_conflict: &'static str,
}

impl Insert<'_> {
    fn head(&self) -> String {
        let names: Vec<&str> = self.columns.iter().map(|(name, _)| *name).collect();
        format!("INSERT INTO {} ({}) ", self.table, names.join(", "))
    }

    /// Inserts the rows into a table of PostgreSQL, in their order.
    ///
    /// # Errors
    /// Those of the server.
    pub async fn into_postgres(self, connection: &mut PgConnection) -> Result<(), sqlx::Error> {
        if self.rows == 0 {
            return Ok(());
        }
        let mut sql = self.head() + "SELECT ";
        for (n, (name, values)) in self.columns.iter().enumerate() {
            let comma = if n == 0 { "" } else { ", " };
            // An array of arrays would come apart into its numbers: they travel as texts.
            let cast = match values {
                Values::Reals(_) => "::DOUBLE PRECISION[]",
                _ => "",
            };
            write!(sql, "{comma}{name}{cast}").expect("a String takes all");
        }
        sql += " FROM UNNEST(";
        for (n, (_, values)) in self.columns.iter().enumerate() {
            let kind = match values {
                Values::Text(_) | Values::Reals(_) => "TEXT",
                Values::Integer(_) => "BIGINT",
                Values::Real(_) => "DOUBLE PRECISION",
                Values::Short(_) => "REAL",
                Values::Flag(_) => "BOOLEAN",
                Values::Bytes(_) => "BYTEA",
                Values::Time(_) => "TIMESTAMPTZ",
            };
            let comma = if n == 0 { "" } else { ", " };
            write!(sql, "{comma}${}::{kind}[]", n + 1).expect("a String takes all");
        }
        let names: Vec<&str> = self.columns.iter().map(|(name, _)| *name).collect();
        write!(sql, ") AS rows ({}) {}", names.join(", "), self.on_conflict)
            .expect("a String takes all");
        let mut query = sqlx::query(AssertSqlSafe(sql));
        for (_, values) in self.columns {
            query = match values {
                Values::Text(values) => query.bind(values),
                Values::Integer(values) => query.bind(values),
                Values::Real(values) => query.bind(values),
                Values::Short(values) => query.bind(values),
                Values::Flag(values) => query.bind(values),
                Values::Bytes(values) => query.bind(values),
                Values::Time(values) => query.bind(values),
                Values::Reals(lists) => {
                    // Numbers of JSON are numbers of an array literal; only the brackets differ.
                    let array = |list: &[f64]| json(list).replace('[', "{").replace(']', "}");
                    query.bind(lists.into_iter().map(array).collect::<Vec<String>>())
                }
            };
        }
        query.execute(connection).await?;
        Ok(())
    }

    /// Copies the rows into a table of PostgreSQL, in their order. A key that is there is an error, and so is a column of
    /// another type than its values have.
    ///
    /// # Errors
    /// Those of the server.
    pub async fn copied_to_postgres(
        self,
        connection: &mut PgConnection,
    ) -> Result<(), sqlx::Error> {
        if self.rows == 0 {
            return Ok(());
        }
        let names: Vec<&str> = self.columns.iter().map(|(name, _)| *name).collect();
        let copy = format!(
            "COPY {} ({}) FROM STDIN (FORMAT BINARY)",
            self.table,
            names.join(", ")
        );
        let mut pieces = Pieces::of(&self.columns, self.rows);
        let mut copying = connection.copy_in_raw(&copy).await?;
        loop {
            match pieces.next() {
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
        Ok(())
    }

    /// Inserts the rows into a table of SQLite, in their order.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn into_sqlite(self, connection: &mut SqliteConnection) -> Result<(), sqlx::Error> {
        let mut parts = Vec::new();
        let mut start = 0;
        for size in SQLITE_ROWS {
            // From the largest size down: a rest of 511 rows takes 21 statements of three texts, and each text is
            // prepared once.
            while self.rows - start >= size {
                parts.push(start..start + size);
                start += size;
            }
        }
        let mut parts = parts.into_iter();
        let Some(mut part) = parts.next() else {
            return Ok(());
        };
        let mut text: (usize, Arc<str>) = (0, "".into());
        let mut arguments = self.arguments(part.clone())?;
        loop {
            if text.0 != part.len() {
                text = (part.len(), self.sqlite_text(part.len()).into());
            }
            let query = sqlx::query_with(AssertSqlSafe(text.1.clone()), arguments);
            let next = parts.next();
            // SQLite has a thread of its own: while it stores one part, the next one is made ready.
            let (done, ready) = tokio::join!(query.execute(&mut *connection), async {
                next.clone().map(|next| self.arguments(next)).transpose()
            });
            done?;
            let (Some(next), Some(ready)) = (next, ready?) else {
                return Ok(());
            };
            (part, arguments) = (next, ready);
        }
    }

    fn sqlite_text(&self, rows: usize) -> String {
        let row = format!("({})", vec!["?"; self.columns.len()].join(", "));
        let all = vec![row.as_str(); rows].join(", ");
        format!("{}VALUES {all} {}", self.head(), self.on_conflict)
    }

    fn arguments(&self, rows: Range<usize>) -> Result<SqliteArguments, sqlx::Error> {
        let mut arguments = SqliteArguments::default();
        arguments.reserve(rows.len() * self.columns.len(), 0);
        // Most times of a column are the same as the one before: written out once.
        let mut times: Vec<Option<(DateTime<Utc>, Arc<str>)>> = vec![None; self.columns.len()];
        for row in rows {
            for ((_, values), written) in self.columns.iter().zip(&mut times) {
                let added = match values {
                    Values::Text(values) => arguments.add(values[row]),
                    Values::Integer(values) => arguments.add(values[row]),
                    Values::Real(values) => arguments.add(values[row]),
                    Values::Short(values) => arguments.add(values[row].map(f64::from)),
                    Values::Flag(values) => arguments.add(values[row]),
                    Values::Bytes(values) => arguments.add(values[row]),
                    Values::Reals(lists) => arguments.add(json(lists[row])),
                    Values::Time(values) => {
                        let text = values[row].map(|time| match written {
                            Some((known, text)) if *known == time => text.clone(),
                            _ => {
                                // As sqlx writes times, and reads them.
                                let text = time.to_rfc3339_opts(SecondsFormat::AutoSi, false);
                                written.insert((time, text.into())).1.clone()
                            }
                        });
                        arguments.add(text)
                    }
                };
                added.map_err(sqlx::Error::Encode)?;
            }
        }
        Ok(arguments)
    }
}

/// Numbers as a JSON array; each reads back as the same number.
fn json(list: &[f64]) -> String {
    serde_json::to_string(list).expect("numbers are JSON")
}
