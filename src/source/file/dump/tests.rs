//! Dumps whole and broken, and what comes out of them.

use super::*;

const POST: &str = r#"{"id":"abc1","subreddit":"s","title":"A","created_utc":1}"#;

fn reading(format: FileFormat) -> Reading {
    Reading {
        format,
        filter: Filter::default(),
        columns: Vec::new(),
    }
}

#[test]
fn a_file_that_cannot_be_read_says_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, bytes: &[u8]| {
        let path = folder.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        path
    };
    let fails = |path: &Path, format| check(path, &reading(format)).unwrap_err();
    let gone = folder.path().join("gone");
    let empty = write("empty", b"");
    for format in [
        FileFormat::Listing,
        FileFormat::Ndjson,
        FileFormat::Dump,
        FileFormat::Csv,
        FileFormat::Parquet,
    ] {
        assert!(matches!(fails(&gone, format), DumpError::Missing(_)));
        assert!(matches!(fails(&empty, format), DumpError::Empty(_)));
        let folder = fails(folder.path(), format);
        assert!(matches!(folder, DumpError::Directory(_)), "{folder}");
    }
    let nothing = write("nothing.zst", &zstd::encode_all(&b""[..], 1).unwrap());
    assert!(matches!(
        fails(&nothing, FileFormat::Dump),
        DumpError::Empty(_)
    ));
    let packed = write("RS.zst", b"\x28\xb5\x2f\xfd....");
    let error = fails(&packed, FileFormat::Ndjson);
    assert!(error.to_string().contains("--format dump"), "{error}");
    let error = fails(&write("a.gz", b"\x1f\x8b"), FileFormat::Dump);
    assert!(error.to_string().contains("gzip -d"), "{error}");
    let lines = write("posts.ndjson", POST.as_bytes());
    let error = fails(&lines, FileFormat::Listing);
    assert!(error.to_string().contains("--format ndjson"), "{error}");
    let error = fails(
        &write("latin1", b"{\"kind\":\"caf\xe9\"}"),
        FileFormat::Listing,
    );
    assert!(matches!(error, DumpError::NotUtf8(_)), "{error}");
    let listing = br#"{"kind":"Listing","data":{"after":null,"children":[]}}"#;
    assert_eq!(
        read_listing(&write("page", listing)).unwrap(),
        ListingPage::default()
    );
}

#[test]
fn a_file_is_known_by_its_size_and_its_start() {
    let folder = tempfile::tempdir().unwrap();
    let known = |bytes: &[u8]| {
        let path = folder.path().join("file");
        std::fs::write(&path, bytes).unwrap();
        fingerprint(&path).unwrap()
    };
    assert_eq!(known(b"abc"), known(b"abc"));
    assert_ne!(known(b"abc"), known(b"abd"));
    assert_ne!(known(&vec![0; 2 << 20]), known(&vec![0; 3 << 20]));
}

#[test]
fn utf16_is_read_as_utf8_with_its_mark_and_without() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("file");
    let post = POST.replace('A', "日本 👩‍🚀");
    let csv = "id,title,subreddit,created_utc\nabc1,日本 👩‍🚀,s,1\n".to_owned();
    let formats = [
        (FileFormat::Ndjson, format!("{post}\r\n{post}\r\n")),
        (FileFormat::Dump, format!("{post}\n")),
        (FileFormat::Csv, csv),
    ];
    for (format, text) in &formats {
        for mark in ["", "\u{feff}"] {
            for bytes_of in [u16::to_le_bytes, u16::to_be_bytes] {
                let units = format!("{mark}{text}");
                let bytes: Vec<u8> = units.encode_utf16().flat_map(bytes_of).collect();
                std::fs::write(&path, &bytes).unwrap();
                let block = blocks(&path, &reading(*format)).unwrap().next_block();
                assert!(block.rejected.is_empty(), "{format:?}: {block:?}");
                assert_eq!(block.records[0].post.title, "日本 👩‍🚀");
                assert_eq!(block.read, bytes.len() as u64);
            }
        }
    }
}

#[test]
fn blocks_end_early_where_texts_are_long_and_say_where_they_end() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("dump");
    let long = "x".repeat(BLOCK_TEXT / 4);
    let line = POST.replace('A', &long);
    std::fs::write(&path, format!("{line}\n").repeat(6)).unwrap();
    let mut blocks = blocks(&path, &reading(FileFormat::Dump)).unwrap();
    let first = blocks.next_block();
    assert_eq!((first.records.len(), first.end), (4, None));
    assert_eq!(first.position.bytes, 4 * (line.len() as u64 + 1));
    let second = blocks.next_block();
    assert_eq!((second.records.len(), second.end), (2, Some(End::Whole)));
    assert_eq!(second.read, 6 * (line.len() as u64 + 1));
}
