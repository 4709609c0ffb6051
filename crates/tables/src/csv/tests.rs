//! Tests for the CSV reader.

use super::header::MAX_COLUMNS;
use super::*;
use std::io::{self, BufReader};

fn read(text: &[u8], delimiter: Option<u8>) -> Result<Vec<String>, TableError> {
    let text = Box::new(BufReader::with_capacity(3, Cursor::new(text.to_vec())));
    let mut rows = Csv::new(text, delimiter)?;
    let mut rows_read = vec![rows.names.join("|")];
    while let Some(row) = rows.next_row()? {
        let texts = row.cells.iter().map(|(_, cell)| cell.text());
        let cells = texts
            .map(Option::unwrap_or_default)
            .collect::<Vec<_>>()
            .join("|");
        rows_read.push(match row.problem {
            Some(problem) => format!("{} {cells} {problem}", row.line),
            None => format!("{} {cells}", row.line),
        });
    }
    Ok(rows_read)
}

#[test]
fn the_delimiter_is_detected_from_the_header() {
    for (text, expected) in [
        ("id,a b\n1,2;3\n", ["id|a b", "2 1|2;3"]),
        ("id;\"a,b,c\"\n1;2,3\n", ["id|a,b,c", "2 1|2,3"]),
        ("id\ta\r\n1\t2,3\r\n", ["id|a", "2 1|2,3"]),
        // Line ends of `\r` alone are not counted.
        ("id|a\r1|x", ["id|a", "1 1|x"]),
        ("sep=;\r\n\r\nid;a\r\n1;x\r\n", ["id|a", "4 1|x"]),
        ("sep=;\nid;a\n1;x", ["id|a", "3 1|x"]),
        ("\n\n a \n\"x, y\"\n", ["a", "4 x, y"]),
        // A quote inside a name is part of it.
        ("5\" tv;id\n2,3;1\n", ["5\" tv|id", "2 2,3|1"]),
        ("id;\"a \"\"b,\n,\"\"\"\n1;2\n", ["id|a \"b,\n,\"", "3 1|2"]),
    ] {
        assert_eq!(read(text.as_bytes(), None).unwrap(), expected, "{text:?}");
    }
    assert_eq!(read(b"a,b;c\n1,2;3", Some(b';')).unwrap()[0], "a,b|c");
    let error = read("x,".repeat(MAX_COLUMNS).as_bytes(), None).unwrap_err();
    assert!(error.to_string().contains("more than 10000"), "{error}");
    // This would take minutes if each name were compared with all others.
    let equal = read(vec!["x"; MAX_COLUMNS].join(",").as_bytes(), None).unwrap();
    assert!(equal[0].starts_with("x|x_2|x_3|") && equal[0].ends_with("|x_10000"));
}

#[test]
fn a_malformed_row_has_a_problem_and_keeps_its_cells() {
    let text =
        b"id,,text,text\n1,,\"a \"\"quoted\"\"\nline\",x\n2,x\n3,a,b,c,d\n4,,caf\xe9,y\n5,,z,z";
    let rows_read = read(text, None).unwrap();
    let expected = [
        "id|column_2|text|text_2",
        "2 1||a \"quoted\"\nline|x",
        "4 2|x has 2 values, but the header has 4",
        "5 3|a|b|c has 5 values",
        "6 4||caf\u{fffd}|y is not UTF-8 (`text` at byte 4)",
        "7 5||z|z",
    ];
    assert_eq!(rows_read.len(), expected.len());
    for (rows_read, expected) in rows_read.iter().zip(expected) {
        assert!(rows_read.starts_with(expected), "{rows_read}");
    }
}

#[test]
fn an_undoubled_quote_is_a_problem_and_a_backslash_is_not() {
    let text = b"id,a,b\n1,\"so \\\"hi\\\" it\",x\n2,\"C:\\dir\\\",\"\\n\"\n3,\"a \\\"hi, there\\\" b\",x\n\
        4,\"two \"\"\"\"\",5\" \\\"x\n5,\"so \"hi\" it\",x\n6,\"\",\"\"\"a\"\"\"\n";
    let rows_read = read(text, None).unwrap();
    let has = |row: usize| rows_read[row].contains("not doubled");
    assert_eq!(
        [1, 2, 3, 4, 5, 6].map(has),
        [true, false, true, false, true, false]
    );
    assert_eq!(rows_read[2], "3 2|C:\\dir\\|\\n");
    assert_eq!(rows_read[4], "5 4|two \"\"|5\" \\\"x");
    assert_eq!(rows_read[6], "7 6||\"a\"");
}

#[test]
fn an_unclosed_quote_at_the_end_is_reported() {
    let rows_read = read(b"id,text\n1,\"open\n2,x\n3,y\n", None).unwrap();
    assert_eq!(rows_read.len(), 3, "{rows_read:?}");
    assert!(
        rows_read[2].starts_with("2  has a quote that is not closed"),
        "{rows_read:?}"
    );
    let inches = b"id,text\n1,5\" pipe\n2,\"two\nlines\"\n3,x\n";
    assert_eq!(read(inches, None).unwrap().len(), 4);
}

#[test]
fn an_unclosed_quote_is_not_read_into_memory() {
    struct Endless;
    impl Read for Endless {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            buffer.fill(b'x');
            Ok(buffer.len())
        }
    }
    let head = Cursor::new(b"id,text\na1,\"One".to_vec());
    let mut rows = Csv::new(Box::new(BufReader::new(head.chain(Endless))), None).unwrap();
    let row = rows.next_row().unwrap().unwrap();
    assert!(row.problem.unwrap().contains("not closed"));
    assert!(rows.next_row().unwrap().is_none());
    let endless = Csv::new(Box::new(BufReader::new(Endless)), None);
    assert!(matches!(endless, Err(TableError::Header(_))));
}
