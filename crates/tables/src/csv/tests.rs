//! Tests of CSV.

use super::header::MAX_COLUMNS;
use super::*;
use std::io::BufReader;

fn read(text: &[u8], delimiter: Option<u8>) -> Result<Vec<String>, TableError> {
    let text = Box::new(BufReader::with_capacity(3, Cursor::new(text.to_vec())));
    let mut rows = Csv::new(text, delimiter)?;
    let mut told = vec![rows.names.join("|")];
    while let Some(row) = rows.next_row()? {
        let cells = row
            .cells
            .iter()
            .map(|(_, cell)| cell.text().unwrap_or_default());
        let cells = cells.collect::<Vec<_>>().join("|");
        told.push(match row.problem {
            Some(problem) => format!("{} {cells} {problem}", row.line),
            None => format!("{} {cells}", row.line),
        });
    }
    Ok(told)
}

#[test]
fn the_delimiter_is_what_the_line_of_names_has() {
    for (text, expected) in [
        ("id,a b\n1,2;3\n", ["id|a b", "2 1|2;3"]),
        ("id;\"a,b,c\"\n1;2,3\n", ["id|a,b,c", "2 1|2,3"]),
        ("id\ta\r\n1\t2,3\r\n", ["id|a", "2 1|2,3"]),
        // Lines that end as they did on old Macs are not counted.
        ("id|a\r1|x", ["id|a", "1 1|x"]),
        ("sep=;\r\n\r\nid;a\r\n1;x\r\n", ["id|a", "4 1|x"]),
        ("sep=;\nid;a\n1;x", ["id|a", "3 1|x"]),
        ("\n\n a \n\"x, y\"\n", ["a", "4 x, y"]),
    ] {
        assert_eq!(read(text.as_bytes(), None).unwrap(), expected, "{text:?}");
    }
    assert_eq!(read(b"a,b;c\n1,2;3", Some(b';')).unwrap()[0], "a,b|c");
    let error = read("x,".repeat(MAX_COLUMNS).as_bytes(), None).unwrap_err();
    assert!(error.to_string().contains("more than 10000"), "{error}");
}

#[test]
fn a_row_that_does_not_fit_says_so_and_keeps_what_it_has() {
    let text =
        b"id,,text,text\n1,,\"a \"\"quoted\"\"\nline\",x\n2,x\n3,a,b,c,d\n4,,caf\xe9,y\n5,,z,z";
    let told = read(text, None).unwrap();
    let expected = [
        "id|column_2|text|text_2",
        "2 1||a \"quoted\"\nline|x",
        "4 2|x has 2 values where",
        "5 3|a|b|c has 5 values",
        "6 4||caf\u{fffd}|y is not UTF-8 (`text` at byte 4)",
        "7 5||z|z",
    ];
    for (told, expected) in told.iter().zip(expected) {
        assert!(told.starts_with(expected), "{told}");
    }
}

#[test]
fn a_quote_that_is_not_doubled_costs_its_row_and_a_backslash_alone_none() {
    let text = b"id,a,b\n1,\"so \\\"hi\\\" it\",x\n2,\"C:\\dir\\\",\"\\n\"\n3,\"a \\\"hi, there\\\" b\",x\n\
        4,\"two \"\"\"\"\",5\" \\\"x\n5,\"so \"hi\" it\",x\n6,\"\",\"\"\"a\"\"\"\n";
    let told = read(text, None).unwrap();
    let has = |row: usize| told[row].contains("not doubled");
    assert_eq!(
        [1, 2, 3, 4, 5, 6].map(has),
        [true, false, true, false, true, false]
    );
    assert_eq!(told[2], "3 2|C:\\dir\\|\\n");
    assert_eq!(told[4], "5 4|two \"\"|5\" \\\"x");
    assert_eq!(told[6], "7 6||\"a\"");
}

#[test]
fn a_quote_that_the_end_finds_open_is_told() {
    let told = read(b"id,text\n1,\"open\n2,x\n3,y\n", None).unwrap();
    assert_eq!(told.len(), 3, "{told:?}");
    assert!(
        told[2].starts_with("2  has a quote that is not closed"),
        "{told:?}"
    );
    let inches = b"id,text\n1,5\" pipe\n2,\"two\nlines\"\n3,x\n";
    assert_eq!(read(inches, None).unwrap().len(), 4);
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
    let head = Cursor::new(b"id,text\na1,\"One".to_vec());
    let mut rows = Csv::new(Box::new(BufReader::new(head.chain(Endless))), None).unwrap();
    let row = rows.next_row().unwrap().unwrap();
    assert!(row.problem.unwrap().contains("not closed"));
    assert!(rows.next_row().unwrap().is_none());
    let endless = Csv::new(Box::new(BufReader::new(Endless)), None);
    assert!(matches!(endless, Err(TableError::Header(_))));
}
