//! Tests the formats of files to import: detected by content, compressed, piped, or unsupported.

use super::*;
use crate::support::program::{finished, wrapped};
use topicmill_core::table;

#[test]
fn gzip_files_of_several_members_are_imported_completely() {
    let gzip = |text: &str| {
        let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        packer.write_all(text.as_bytes()).unwrap();
        packer.finish().unwrap()
    };
    let program = Program::new();
    let table = [
        "id,title,subreddit,created_utc\na1,One,food,1700000000\n",
        "a2,Two,food,1700000000\n",
    ];
    program.write("posts.csv.gz", table.map(gzip).concat());
    program.ok("import --format csv posts.csv.gz");
    assert_eq!(program.count("posts"), 2);
    let halves = [dump(0..3), dump(3..6)].map(|half| gzip(&half));
    program.write("RS.gz", halves.concat());
    assert_eq!(counts(&program, "RS.gz", ["posts"]), [2]);
}

/// Returns a file of two posts, which differ only in their ids and replace `$1` and `$2` in the layout.
fn two(layout: &str) -> String {
    let post = |id| {
        format!(
            "{{\"id\":\"{id}\",\"title\":\"Rye\",\"subreddit\":\"food\",\"created_utc\":1700000000}}"
        )
    };
    layout.replace("$1", &post("a1")).replace("$2", &post("a2"))
}

#[test]
fn the_format_is_detected_from_the_content() {
    let table = "id;title;subreddit;created_utc\na1;Rye;food;1700000000\na2;Rye;food;1700000000\n";
    let pretty = two("$1$2").replace('{', "{\n  ").replace(',', ",\n  ");
    for (name, text) in table! {
        "lines", two("$1\n$2\n");
        "array.json", two("[$1, $2]");
        "array.ndjson", two("[\n$1,\n$2\n]\n");
        "pretty.json", pretty.replace('}', "\n}\n");
        "answer.json", two("{\"ok\": true, \"data\": [\n$1,\n$2\n]}");
        "listing.json",
            two("{\"kind\":\"Listing\",\"data\":{\"after\":null,\"children\":[{\"kind\":\"t3\",\"data\":$1},\
                {\"kind\":\"t3\",\"data\":$2}]}}");
        "keyed.json", two("{\"a1\": $1, \"a2\": $2}");
        "ids.json", two("{\"a1\": $1, \"t3_a2\": $2}").replace("\"id\":", "\"x\":");
        "lists.json", two("{\"food\": [$1, $2], \"music\": []}");
        "semicolons.csv", table.to_owned();
        "excel.csv", format!("\u{feff}sep=;\r\n{table}");
        "tabs.tsv", table.replace(';', "\t");
        "tabs.txt", table.replace(';', "\t");
    } {
        let program = Program::new();
        program.write(name, text);
        let counts = program.run_counts(&format!("import {name}"));
        assert_eq!(counts["posts"], 2, "{name}");
    }
}

#[test]
fn a_broken_json_array_loses_only_the_broken_part() {
    for (layout, good, output) in [
        ("[$1, {\"id\": 7}, $2]", 2, "rejected=1"),
        ("[$1, $2", 2, "truncated"),
        ("[$1,\n{\"id\": \"x},\n$2]", 2, "line 2"),
        ("[$1, $2] and more", 2, "follows the array"),
        ("{\"data\": [$1, null, $2]}", 2, "line 1, record 2"),
        ("{\n\"data\": [$1, $2]", 0, "truncated"),
    ] {
        let program = Program::new();
        program.write("posts.json", two(layout));
        let ran = program.run("import posts.json");
        ran.expect_exit(1, output);
        ran.expect_stderr(&format!("posts={good} "));
    }
}

#[test]
#[cfg(unix)]
fn pipes_are_read_once_without_hanging() {
    let program = Program::new();
    program.write("posts.ndjson", two("$1\n$2\n"));
    for (name, script) in table! {
        "-", "cat posts.ndjson | timeout 60 \"$@\"";
        "fifo", "mkfifo fifo && (cat posts.ndjson > fifo &) && timeout 60 \"$@\"";
    } {
        let import = program.command(&format!("import {name}"));
        let ran = wrapped(&["sh", "-c", script, "sh"], &import).output();
        finished(ran.unwrap()).expect_exit(0, "posts=2");
    }
    program.run("import - -").expect_exit(2, "only once");
}

#[test]
fn unsupported_formats_are_named() {
    let program = Program::new();
    for (bytes, named) in table! {
        &b"PK\x03\x04\x14\0\x06\0[Content_Types].xml"[..], "Excel workbook";
        b"PK\x03\x04\x14\0\0\0posts.csv", "zip archive";
        b"ARROW1\0\0", "Feather";
        b"ORC\n\x08\x01\x10\x02\x18\x03", "ORC";
        b"BZh91AY&SY\0\0", "bzip2";
        b"%PDF-1.7\n%\xe2\xe3", "a PDF";
        b"SQLite format 3\0\x10\0\x01\x01\0", "SQLite database";
        b"<!DOCTYPE html>\n<html>", "a web page";
        b"\x01\x02\x03\x04\xff\xfe\x05\x06", "neither text nor";
    } {
        program.write("posts.csv", bytes);
        for command in ["import posts.csv", "score posts.csv out.csv --label a"] {
            let ran = program.run(command);
            ran.expect_exit(2, named);
            assert!(!ran.stderr.contains("iconv"), "{}", ran.stderr);
        }
    }
    program.write("texts.txt", "hello world\nsecond text\n");
    program.run("import texts.txt").expect_exit(2, "only text");
}
