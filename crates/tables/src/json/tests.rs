//! Tests for the JSON reader.

use super::*;
use crate::{Cell, Row, Rows};
use std::io::{BufRead, BufReader, Cursor};
use std::sync::Arc;

fn slow(text: &[u8]) -> Box<dyn BufRead + Send> {
    Box::new(BufReader::with_capacity(3, Cursor::new(text.to_vec())))
}

/// Formats each row as its line number followed by its cells or its problem.
fn formatted(rows: &mut dyn Rows) -> Vec<String> {
    let next = || rows.next_row().unwrap();
    let show = |row: Row| {
        let cells: Vec<String> = row.cells.iter().map(shown).collect();
        format!(
            "{} {}",
            row.line,
            row.problem.unwrap_or_else(|| cells.join(" "))
        )
    };
    std::iter::from_fn(next).map(show).collect()
}

fn shown((name, cell): &(Arc<str>, Cell)) -> String {
    let mut out = format!("{name}=");
    cell.write_json(&mut out);
    out
}

#[test]
fn ndjson_lines_are_rows_and_blank_lines_are_skipped() {
    let text =
        b"{\"a\":1.10,\"b\":\"x\"}\r\n\n{\"a\":NaN}\nsecret\n\"secret\"\n{\"a\":{ \"c\" : [1] },\"a\":2}\n{";
    assert_eq!(
        formatted(&mut JsonRecords::new(slow(text))),
        [
            "1 a=1.10 b=\"x\"",
            "3 a=null",
            "4 is not JSON (at column 1)",
            "5 is not a JSON object",
            "6 a=2",
            "7 is truncated JSON",
        ]
    );
}

#[test]
fn array_elements_are_rows_in_any_layout() {
    let text =
        b" \n[\n  {\"a\": \"],[{\\\"\",\n \"b\": [1,\n {\"c\": \"\\\\\"}]},7 , {\"a\":null}\n]\n";
    let expected = [
        "3 a=\"],[{\\\"\" b=[1,{\"c\":\"\\\\\"}]",
        "5 is not a JSON object",
        "5 a=null",
    ];
    assert_eq!(formatted(&mut JsonRecords::new(slow(text))), expected);
    assert!(formatted(&mut JsonRecords::new(slow(b"[]"))).is_empty());
    for (text, rows) in [(&b"[{\"a\":1}]\n [{\"a\":2}]"[..], 1), (b"[]{}", 0)] {
        let trailing = formatted(&mut JsonRecords::new(slow(text)));
        assert_eq!(trailing.len(), rows + 1);
        assert!(trailing[rows].contains("follows the array"), "{trailing:?}");
    }
    let cut = formatted(&mut JsonRecords::new(slow(b"[{\"a\":1},{\"a\"")));
    assert_eq!(cut[0], "1 a=1");
    assert!(cut.len() == 2 && cut[1].contains("truncated"), "{cut:?}");
    let open = formatted(&mut JsonRecords::new(slow(b"[{\"a\":1},{\"a\":2}\n")));
    assert_eq!(open[..2], ["1 a=1", "1 a=2"]);
    assert!(open.len() == 3 && open[2].contains("truncated"), "{open:?}");
    // A missing quote invalidates only its element.
    let torn = b"[\n{\"a\":1},\n{\"a\":\"x},\n{\"a\":2}]";
    let torn = formatted(&mut JsonRecords::new(slow(torn)));
    assert_eq!(torn, ["2 a=1", "3 is truncated JSON", "4 a=2"]);
}

#[test]
fn an_array_resumes_after_any_element_and_a_filter_reads_whole_objects() {
    let text = b"[{\"a\":1},\n{\"a\":2}]\n";
    let mut earlier = JsonRecords::new(slow(text));
    for left in [1, 0] {
        assert_eq!(earlier.read(|_| true).unwrap(), JsonItem::Record);
        let mut rows = JsonRecords::new(slow(text));
        rows.resume(earlier.position());
        assert_eq!(formatted(&mut rows), ["2 a=2"][..left]);
    }
    let text = b"{\r\n\"a\":1}\r\n{\"b\":2}\r\n{\"a\":3}\r\n";
    let mut filtered = JsonRecords::new(Box::new(&text[..]));
    for record in [&text[..11], &text[20..]] {
        let wanted = |json: &[u8]| json.windows(3).any(|bytes| bytes == b"\"a\"");
        assert_eq!(filtered.read(wanted).unwrap(), JsonItem::Record);
        assert_eq!(filtered.record(), record);
    }
}

#[test]
fn multi_line_objects_and_wrapped_api_records_are_rows() {
    let text =
        b"{\n \"a\": [1,\n  {\"b\": \"}\"}]\n}\n{\"a\":2}\n{\n\"a\": 3\n}{\"a\":\n{\"a\":4}\n";
    let expected = [
        "1 a=[1,{\"b\":\"}\"}]",
        "5 a=2",
        "6 is not JSON (at its line 3, column 2)",
        "9 a=4",
    ];
    assert_eq!(formatted(&mut JsonRecords::new(slow(text))), expected);
    for text in [
        "{\"status\": \"ok\", \"data\": [{\"a\":1}, {\"a\":2}], \"next\": null}",
        "{\n\"data\": {\"posts\": [\n{\"a\":1},\n{\"a\":2}\n]\n}}",
        "{\"kind\":\"Listing\",\"data\":{\"after\":null,\"children\":[{\"kind\":\"t3\",\"data\":{\"a\":1}},\
            {\"kind\":\"t3\",\"data\":{\"a\":2}}]}}",
    ] {
        let rows = formatted(&mut JsonRecords::new(slow(text.as_bytes())));
        assert_eq!(rows, ["1 a=1", "1 a=2"], "{text}");
    }
    // An object with a text member is a record, not a wrapper.
    let own = formatted(&mut JsonRecords::new(slow(
        b"{\"text\":\"x\",\"items\":[{\"a\":1}]}",
    )));
    assert_eq!(own, ["1 text=\"x\" items=[{\"a\":1}]"]);
}
