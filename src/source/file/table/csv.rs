//! Posts from CSV with a line of names: a row a post.

use std::io::Read;

use serde_json::Value;

use super::columns::{Column, TableError, find, record, rejected, row_of};
use crate::source::file::row::{FileRow, Position, Rows, not_utf8};
use crate::tables::csv::Limited;

/// The rows of a CSV file; the line of names is none.
#[derive(Debug)]
pub struct Csv<R> {
    reader: csv::Reader<Limited<R>>,
    row: csv::ByteRecord,
    fields: Vec<(usize, &'static str)>,
    number: u64,
    broken: bool,
}

impl<R: Read> Csv<R> {
    /// Reads the line of names.
    ///
    /// # Errors
    /// When a column is missing, or the line cannot be read.
    pub fn new(reader: R, wanted: &[Column]) -> Result<Self, TableError> {
        let mut reader = csv::Reader::from_reader(Limited::new(reader));
        let names = reader.byte_headers()?;
        // A name that is not UTF-8 is of no field: it is only shown, in the list of the columns that there are.
        let names: Vec<String> = names
            .iter()
            .map(|name| String::from_utf8_lossy(name).trim().to_owned())
            .collect();
        Ok(Self {
            reader,
            row: csv::ByteRecord::new(),
            fields: find(wanted, &names)?,
            number: 0,
            broken: false,
        })
    }
}

impl<R: Read + Send> Rows for Csv<R> {
    fn next_row(&mut self) -> Option<FileRow> {
        if self.broken {
            return None;
        }
        self.reader.get_mut().next_row();
        let read = self.reader.read_byte_record(&mut self.row);
        self.number += u64::from(!matches!(read, Ok(false)));
        match read {
            Ok(false) => None,
            Ok(true) => {
                let value = |&(at, field): &(usize, &'static str)| {
                    let bytes = self.row.get(at).unwrap_or_default();
                    match std::str::from_utf8(bytes) {
                        Ok(text) => Ok((field, Value::from(text))),
                        Err(_) => Err(not_utf8(&format!("`{field}`"))),
                    }
                };
                let values: Result<Vec<_>, String> = self.fields.iter().map(value).collect();
                Some(row_of(self.number, values.and_then(record)))
            }
            Err(error) => {
                let reason = if let csv::ErrorKind::UnequalLengths {
                    expected_len, len, ..
                } = error.kind()
                {
                    format!("{len} values in place of {expected_len}")
                } else {
                    self.broken = true;
                    format!("cannot be read, nor what follows: {error}")
                };
                Some(rejected(self.number, reason))
            }
        }
    }

    fn position(&self) -> Position {
        Position {
            bytes: self.reader.position().byte(),
            rows: self.number,
            left_out: 0,
        }
    }

    fn broken(&self) -> bool {
        self.broken
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::file::row::Record;
    use crate::source::page::Rejected;
    use std::io;

    fn csv(text: impl AsRef<[u8]>, wanted: &[Column]) -> Result<Vec<String>, TableError> {
        let mut rows = Csv::new(text.as_ref(), wanted)?;
        let fates = std::iter::from_fn(|| rows.next_row()).map(|row| match row {
            FileRow::Record(Record { post, topic }) => {
                let secs = post.created_at.as_datetime().timestamp();
                format!("{} {secs} {topic:?}", post.fullname)
            }
            FileRow::Rejected(Rejected { at, reason }) => format!("{at}: {reason}"),
            FileRow::Quiet => unreachable!("every row of a table is one"),
        });
        Ok(fates.collect())
    }

    #[test]
    fn a_wrong_value_costs_its_row() {
        let text = "\u{feff}id,title,subreddit,created_utc,score,over_18,topic\n\
            a1,One,food,1700000000,3,False,food\n\
            a2,Two,food,yesterday,3,,\n\
            a3,Three,food,2023-11-14,many,,\n\
            a4,Four,food,2023-11-14,4,perhaps,\n\
            a5,Five\n\
            a6,,food,1,,,\n\
            a7,\"Seven, and\nmore\",food,2023-11-14 22:13:20,,,\n";
        assert_eq!(
            csv(text, &[]).unwrap(),
            [
                "t3_a1 1700000000 Some(\"food\")",
                "row 2: `created_utc` is no time",
                "row 3: `score` is no number",
                "row 4: `over_18` is neither true nor false",
                "row 5: 2 values in place of 7",
                "row 6: neither `title` nor `selftext`",
                "t3_a7 1700000000 None",
            ]
        );
    }

    #[test]
    fn columns_are_mapped_and_missing_ones_told_with_those_there_are() {
        let text = "post_id,headline,subreddit,created_utc\na1,One,food,1\n";
        let columns = |title: &str| {
            let column = |field, name: &str| Column {
                field,
                name: name.to_owned(),
            };
            [column("id", "post_id"), column("title", title)]
        };
        assert_eq!(csv(text, &columns("headline")).unwrap(), ["t3_a1 1 None"]);
        let error = csv(text, &columns("titel")).unwrap_err().to_string();
        assert!(
            error.contains("`titel`") && error.contains("`headline`"),
            "{error}"
        );
        let error = csv(text, &[]).unwrap_err().to_string();
        assert!(
            error.contains("--map title=COLUMN") && error.contains("`headline`"),
            "{error}"
        );
    }

    #[test]
    fn a_value_that_is_not_utf8_costs_its_row_where_it_is_read() {
        let text = b"id,title,subreddit,created_utc,r\xe9sum\xe9\n\
            a1,One,food,1,caf\xe9\na2,caf\xe9,food,1,\na3,caf\xef\xbf\xbd,food,1,\n";
        let fates = csv(text, &[]).unwrap();
        assert_eq!((&*fates[0], &*fates[2]), ("t3_a1 1 None", "t3_a3 1 None"));
        assert!(
            fates[1].starts_with("row 2: `title` is not UTF-8: convert the file"),
            "{}",
            fates[1]
        );
    }

    #[test]
    fn a_field_that_two_columns_are_named_for_is_told() {
        let text = "id,title,title,x,x,subreddit,created_utc\na1,One,Two,,,food,1\n";
        let error = csv(text, &[]).unwrap_err().to_string();
        assert!(
            error.contains("two columns are named `title`") && error.contains("rename one"),
            "{error}"
        );
        // Another column may hold the field, and columns that nobody reads may have any names.
        let headline = Column {
            field: "title",
            name: "headline".to_owned(),
        };
        let text = text.replace("title,x", "headline,x");
        assert_eq!(csv(&text, &[headline]).unwrap(), ["t3_a1 1 None"]);
    }

    #[test]
    fn a_quote_that_nobody_closes_is_not_read_into_memory() {
        struct Endless;
        impl Read for Endless {
            fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
                buffer.fill(b'x');
                Ok(buffer.len())
            }
        }
        let head = "id,title,subreddit,created_utc\na1,\"One";
        let mut rows = Csv::new(head.as_bytes().chain(Endless), &[]).unwrap();
        let row = rows.next_row();
        let told =
            matches!(&row, Some(FileRow::Rejected(row)) if row.reason.contains("not closed"));
        assert!(told, "{row:?}");
        assert!(rows.next_row().is_none() && rows.broken());
    }
}
