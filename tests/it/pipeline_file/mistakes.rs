//! Tests that the mistakes in a pipeline file are reported with their lines.

use super::*;

const BAD: &str = "# mine\n\
nmae = \"x\"\n\
mode = \"singel\"\n\
threshold = 1.5\n\
temperature = \"warm\"\n\
hypothesis_template = \"no braces\"\n\
[[topic]]\n\
slug = \"a\"\n\
lable = \"A thing\"\n\
subredits = [\"xx\"]\n\
[[topic]]\n\
label = \"B\"\n\
subreddits = [\"no good name\", 3]\n\
limit = 0\n\
read = \"both\"\n\
share = [1]\n\
[[topic]]\n\
slug = \"a\"\n\
descriptions = 5\n\
threshold = 0.2\n\
colour = \"red\"\n\
[[topic]]\n\
label = \"b\"\n";

/// Positions of the mistakes in [`BAD`], and the message for each.
const MISTAKES: [(&str, &str); 17] = [
    ("line 2, column 1", "`nmae`: did you mean `name`?"),
    ("line 3, column 8", "`singel` is not a mode"),
    ("line 4, column 13", "the threshold 1.5"),
    ("line 5, column 15", "`temperature` is the string `warm`"),
    ("line 6, column 23", "needs exactly one `{}`"),
    ("line 9, column 1", "`lable`: did you mean `label`?"),
    (
        "line 10, column 1",
        "`subredits`: did you mean `subreddits`?",
    ),
    (
        "line 13, column 15",
        "topic `B`: `no good name` is not a subreddit name",
    ),
    ("line 13, column 31", "`subreddits` lists the number `3`"),
    (
        "line 14, column 9",
        "topic `B`: its limit is 0; Reddit lists 1 to 1000",
    ),
    ("line 15, column 8", "`both` is not one of first, all"),
    ("line 17, column 1", "topic `a` has no `label`"),
    ("line 17, column 1", "(slug `a`) is listed twice"),
    ("line 19, column 16", "`descriptions` is the number `5`"),
    (
        "line 20, column 1",
        "`threshold` here: it belongs above the first [[topic]]",
    ),
    (
        "line 21, column 1",
        "unknown key `colour`: the keys are slug, label,",
    ),
    (
        "line 22, column 1",
        "slug `b` is used twice, for `B` and for `b`",
    ),
];

/// Runs `labels validate` on a file with this text and returns its message.
fn refusal(program: &Program, text: impl AsRef<[u8]>) -> String {
    let path = program.write("refused.toml", text);
    let ran = program.run(&["labels", "validate", "--pipeline", &path]);
    assert_eq!((ran.code, ran.stdout.as_str()), (2, ""), "{}", ran.stderr);
    ran.stderr
}

#[test]
fn all_mistakes_are_reported_together_with_line_and_nearest_key() {
    let program = Program::new();
    let message = refusal(&program, BAD);
    let mut lines = message.lines();
    let first = lines.next().unwrap();
    assert!(first.ends_with("refused.toml` has 17 mistakes:"), "{first}");
    for (place, what) in MISTAKES {
        let line = lines.next().unwrap_or_default();
        assert!(line.starts_with(&format!("  {place}: ")), "{place}: {line}");
        assert!(line.contains(what), "{what}: {line}");
    }
    assert_eq!(lines.next(), None);

    // Commands that only read labels and commands that collect report the same mistakes.
    let path = program.write("bad.toml", BAD);
    for args in [
        &["classify", "--pipeline", &path][..],
        &["run", "--source", "sample", "--pipeline", &path],
        &["import", "x.ndjson", "--pipeline", &path],
        &["labels", "validate", "--pipeline", &path],
    ] {
        let ran = program.run(args);
        assert_eq!(ran.code, 2, "{args:?}: {}", ran.stderr);
        ran.expect_stderr("has 17 mistakes");
    }
}

#[test]
fn invalid_toml_reports_each_broken_line_and_other_mistakes() {
    let program = Program::new();
    let message = refusal(
        &program,
        "name = \nmode = \"single\nlabels = [\"a\"]\ntresholt = 3\nname = \"again\"\n",
    );
    for place in [
        "line 1, ",
        "line 2, ",
        "line 4, column 1: unknown key `tresholt`",
        "line 5, ",
    ] {
        assert!(message.contains(place), "{place}: {message}");
    }
    assert!(message.contains("has 4 mistakes"), "{message}");
    for (text, what) in [
        ("labels = [\"a\", \"b\"\nthreshold = 3\n", "comma"),
        (
            "labels = [\"a\", \"b\n",
            "line 1, column 18: unclosed array",
        ),
        (
            "labels = [a]\n",
            "line 1, column 11: string values must be quoted",
        ),
        (
            "labels = [\"a\"]\nthreshold = 0.5.5\n",
            "line 2, column 16: ",
        ),
        ("labels\n", "line 1, column 7: key with no value"),
        (
            "background = \"redit\"\nlabels = [\"a\"]",
            "line 1, column 14: the background `redit`",
        ),
        (
            "background = 3\nlabels = [\"a\"]",
            "`background` is the number",
        ),
        (
            "background = \"reddit\"\nlabels = [\"other\"]",
            "use a different slug",
        ),
        (
            "background = \"reddit\"\nbackground_without = [\"politics\", \"cheese\"]\nlabels = [\"a\"]",
            "line 2, column 35: the background `reddit`: there is no topic `cheese`",
        ),
        ("labels = []", "has no labels"),
        ("# nothing\n", "has no labels"),
        ("label = [\"a\"]", "did you mean `labels`?"),
        ("topics = []", "did you mean `topic`?"),
        ("topic = [\"a\"]", "a topic is a table"),
        (
            "labels = [\"a\"]\n[[topic]]\nlabel = \"b\"",
            "cannot be combined",
        ),
        ("labels = \"a\"", "`labels` is the string `a`: write a list"),
        ("labels = [\"a\", 3]", "is a string in quotes"),
        ("labels = [\"a\", \" \"]", "the label is empty: fill it in"),
        ("[[topic]]\nlabel = \" \"", "the label is empty: fill it in"),
        ("labels = [\"a\", \"A\"]", "slug `a` is used twice"),
        ("labels = [\"a\", \"a\"]", "is listed twice"),
        ("labels = [\"…\"]", "no slug can be made"),
        ("name = \" \"\nlabels = [\"a\"]", "`name` is empty"),
        ("labels = [\"a\\u0000b\"]", "NUL"),
        ("name = \"a\\u0000b\"\nlabels = [\"a\"]", "NUL"),
        ("temperature = nan\nlabels = [\"a\"]", "temperature NaN"),
        (
            "subreddits = [\"food\"]\nlabels = [\"a\"]",
            "belongs below a [[topic]]",
        ),
        ("[[topic]]\nlabel = \"a\"\nshare = [1]", "read = \"all\""),
        (
            "[[topic]]\nlabel = \"a\"\nsubreddits = [\"aa\", \"bb\"]\nread = \"all\"\nshare = [1]",
            "one number for each subreddit",
        ),
        (
            "[[topic]]\nlabel = \"a\"\nsubreddits = [\"aa\", \"bb\"]\nread = \"all\"\nshare = [0, 0.5]",
            "a share is a whole number",
        ),
        (
            "[[topic]]\nlabel = \"a\"\nsubreddits = [\"aa\", \"AA\"]",
            "r/AA is listed twice",
        ),
    ] {
        let message = refusal(&program, text);
        assert!(message.contains(what), "{what}: {message}");
        // A name that is long or contains a newline is kept on its line.
        assert!(
            message.contains(", line ") || message.contains("  line "),
            "{message}"
        );
    }
    let long = format!(
        "labels = [\"a\"]\n\"{}\\n  line 1: none\" = 1\n",
        "x".repeat(5_000)
    );
    let message = refusal(&program, long);
    assert_eq!(message.lines().count(), 1, "{message}");
    assert!(message.len() < 400, "{message}");
    let many = refusal(&program, "x = 1\n".repeat(500));
    assert!(many.contains("and 480 more"), "{many}");
}

#[test]
fn other_formats_are_read_or_identified() {
    let program = Program::new();
    let text = "labels = [\"süße Sachen\", \"gaming\"]\n";
    let wide = |unit: fn(u16) -> [u8; 2]| -> Vec<u8> {
        let units = std::iter::once(0xFEFF).chain(text.encode_utf16());
        units.flat_map(unit).collect()
    };
    for bytes in [
        text.as_bytes().to_vec(),
        [b"\xEF\xBB\xBF", text.as_bytes()].concat(),
        text.replace('\n', "\r\n").into_bytes(),
        wide(u16::to_le_bytes),
        wide(u16::to_be_bytes),
    ] {
        let path = program.write("read.toml", bytes);
        let ran = program.ok(&words(&format!(
            "labels validate --pipeline {path} --format json"
        )));
        let set: Value = serde_json::from_str(&ran.stdout).unwrap();
        assert_eq!(set["labels"][0]["slug"], "süße-sachen");
        // A file without a label set name uses its file name.
        assert_eq!(set["name"], "read");
    }
    for (bytes, what) in [
        (&b""[..], "is empty"),
        (b"\xEF\xBB\xBF \n\t\n", "is empty"),
        (b"labels = [\"\xFF\"]\n", "line 1 is not UTF-8"),
        (b"\n\nl\0a\0b\0", "line 3 is not UTF-8"),
    ] {
        let path = program.write("other.toml", bytes);
        let ran = program.run(&["labels", "validate", "--pipeline", &path]);
        assert_eq!(ran.code, 2, "{}", ran.stderr);
        assert!(ran.stderr.contains(what), "{what}: {}", ran.stderr);
    }
    let folder = program.folder.path().display().to_string();
    // Paths that are not readable pipeline files.
    for (path, what) in [
        (folder.as_str(), "it is a folder"),
        ("/dev/zero", "larger than 16 MiB"),
        ("nowhere.toml", "topicmill labels new"),
    ] {
        let ran = program.run(&["labels", "validate", "--pipeline", path]);
        assert_eq!(ran.code, 2, "{}", ran.stderr);
        assert!(ran.stderr.contains(what), "{what}: {}", ran.stderr);
    }
}
