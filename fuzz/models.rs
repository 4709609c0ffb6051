//! Fuzz targets for the files in a model folder.

use std::path::Path;

use topicmill_score::folder::manifest::{Graph, Manifest};
use topicmill_score::text::Encoder;

/// An accepted manifest names only files in its folder; the error for any other is one line.
pub fn manifest(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    let is_line = |detail: &String| assert!(!detail.is_empty() && !detail.contains('\n'));
    let Ok(manifest) = Manifest::parse(text).inspect_err(is_line) else {
        return;
    };
    assert_eq!(Manifest::parse(text), Ok(manifest.clone()));
    let files = manifest.graphs.values().flat_map(Graph::files);
    for name in files.chain(manifest.files.keys().map(String::as_str)) {
        assert!(!["", ".."].contains(&name), "{name:?}");
        assert!(!name.contains(['/', '\0']), "{name:?}");
    }
}

/// An accepted tokenizer truncates texts to its limit.
pub fn tokenizer(bytes: &[u8]) {
    const TEXT: &str = "Rye \u{fb01} caf\u{e9}, don't [SEP] 12,5";
    let Ok(encoder) = Encoder::from_bytes(bytes, Path::new("tokenizer.json"), 64, None) else {
        return;
    };
    let texts = [TEXT.to_owned(), TEXT.repeat(200)];
    if let Ok(encoded) = encoder.encode(&texts) {
        for text in encoded {
            assert!(text.len() <= encoder.room());
        }
    }
}
