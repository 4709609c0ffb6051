//! Decides which names may become paths: those that are inside the folder of a model, and do not collide with a file
//! that topicmill writes there.

use std::path::Path;

/// Maximum length of a file name; most file systems allow 255 bytes.
const MAX_NAME: usize = 200;

/// Returns true if a name is valid on every operating system, and not hidden: `.hashes.toml` is trusted when a model is
/// loaded.
fn is_name(name: &str) -> bool {
    let is_letter = |b: u8| b.is_ascii_alphanumeric() || b"-_.+=@,()".contains(&b);
    (1..=MAX_NAME).contains(&name.len()) && !name.starts_with('.') && name.bytes().all(is_letter)
}

/// Returns true if a text is the name of a repository, `owner/name` or `name`.
pub(crate) fn is_repository(text: &str) -> bool {
    text.split('/').count() <= 2 && text.split('/').all(is_name)
}

/// Returns true if a name is a plain file name in the folder or its `onnx` subfolder, on every operating system, and is
/// not reserved by topicmill.
pub(super) fn is_plain(name: &str) -> bool {
    let file = name.strip_prefix("onnx/").unwrap_or(name);
    is_name(file) && !file.ends_with('.') && !file.eq_ignore_ascii_case("onnx")
}

/// Returns true if a name is a graph in the folder or in its `onnx` subfolder.
pub(super) fn is_graph(name: &str) -> bool {
    Path::new(name).extension().is_some_and(|e| e == "onnx") && is_plain(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_names_cannot_traverse_paths() {
        let long = "a".repeat(201);
        for name in ["config.json", "LICENSE", "onnx/model_q4f16.onnx_data_12"] {
            assert!(is_plain(name), "{name}");
        }
        let paths = ["", ".", "..", "/x", "../x", "onnx/../x", "onnx/", "onnx//x"];
        let others = ["a/x", "onnx\\x", "c:x", "x\0", "x\n", "x\u{1b}", "x ", "x."];
        let encoded = ["caf\u{e9}", "a%2fb", "a?b", "a#b", &long, "onnx", "ONNX"];
        let ours = [".hashes.toml", "onnx/.x"];
        for name in [&paths[..], &others, &encoded, &ours].concat() {
            assert!(!is_plain(name), "{name:?}");
        }
        assert!(is_graph("onnx/model.onnx") && !is_graph("../x.onnx") && !is_graph("x.bin"));
    }

    #[test]
    fn repository_names_cannot_traverse_paths() {
        for name in ["facebook/bart-large-mnli", "gpt2", "a.b/c_d-1"] {
            assert!(is_repository(name), "{name}");
        }
        for name in ["", "../b", "a/..", "a b", "a/b?x", "/b"] {
            assert!(!is_repository(name), "{name}");
        }
    }
}
