//! Tests that the mistakes in a pipeline file are reported with their lines.

use topicmill_core::table;

use crate::support::program::Program;

/// Files, and the message for each.
const MISTAKES: &[(&str, &str)] = &table! {
    "nmae = 3", "line 1, column 1: unknown field `nmae`; did you mean `name`?";
    "labels = [\"a\"]\nmode = \"singel\"", "line 2, column 8";
    "labels = [\"a\"]\nthreshold = 1.5", "the threshold 1.5";
    "labels = [\"a\"]\ntemperature = \"warm\"", "line 2, column 15";
    "labels = [\"a\"]\nhypothesis_template = \"none\"", "exactly one `{}`";
    "[[topic]]\nlable = \"a\"", "line 2, column 1: unknown field `lable`; did you mean `label`?";
    "[[topic]]\nlabel = \"a\"\nsubredits = []", "did you mean `subreddits`?";
    "[[topic]]\nlabel = \"a\"\ncolour = 3", "unknown field `colour`, expected one of `slug`";
    "[[topic]]\nlabel = \"a\"\nsubreddits = [\"no good name\"]", "topic `a`: `no good name`";
    "[[topic]]\nlabel = \"a\"\nsubreddits = 3", "line 3, column 14";
    "[[topic]]\nlabel = \"a\"\nlimit = 0", "topic `a`: its limit is 0";
    "[[topic]]\nlabel = \"a\"\nread = \"both\"", "line 3, column 8: unknown variant `both`";
    "[[topic]]\nlabel = \"a\"\nsubreddits = [\"a\"]\nmatch = [\"fine\",\n\"two words\"]",
        "line 4, column 9: `two words`";
    "[[topic]]\nlabel = \"a\"\nmatch = \"word\"", "line 3, column 9";
    "[[topic]]\nlabel = \"a\"\nmatch = []", "line 3, column 9";
    "[[topic]]\nlabel = \"a\"\nmatch = [\"word\"]", "topic `a`: `match`";
    "[[topic]]\nslug = \"a\"", "missing field `label`";
    "[[topic]]\nlabel = \"a\"\ndescriptions = 5", "line 3, column 16: expected a list of strings";
    "labels = [\"a\", \"b\"\nthreshold = 3\n", "line 2, column 1";
    "labels = [a]\n", "line 1, column 11: string values must be quoted";
    "labels\n", "line 1, column 7: key with no value";
    "labels = [\"a\"]\nbackground = \"redit\"", "background: `redit`";
    "labels = [\"a\"]\nbackground = 3", "`background` is neither";
    "labels = [\"other\"]\nbackground = \"reddit\"", "use a different slug";
    "labels = [\"a\"]\nbackground = \"reddit\"\nbackground_without = \"cheese\"", "no topic `cheese`";
    "labels = []", "has no labels";
    "# nothing\n", "has no labels";
    "labels = [\"a\"]\n[[topic]]\nlabel = \"b\"", "cannot be combined";
    "labels = \"a\"", "line 1, column 10";
    "labels = [\"a\", \" \"]", "no slug can be made";
    "[[topic]]\nslug = \"a\"\nlabel = \" \"", "label 1 is empty: fill it in";
    "labels = [\"a\", \"A\"]", "label `a` occurs twice";
    "name = \" \"\nlabels = [\"a\"]", "`name` is empty";
    "labels = [\"a\\u0000b\"]", "NUL";
    "name = \"a\\u0000b\"\nlabels = [\"a\"]", "NUL";
    "labels = [\"a\"]\ntemperature = nan", "temperature NaN";
    "labels = [\"a\"]\ntemperature = 5e-324", "temperature";
    "labels = [\"a\", \"other\"]", "`other`";
    "[[topic]]\nslug = \"a-b\"\nlabel = \"a\"\nsubreddits = [\"a\"]\n\
     [[topic]]\nslug = \"a_b\"\nlabel = \"b\"\nsubreddits = [\"b\"]", "`a-b` and `a_b`";
    "[[topic]]\nlabel = \"a\"\nshare = [1]", "read = \"all\"";
    "[[topic]]\nlabel = \"a\"\nsubreddits = [\"aa\", \"bb\"]\nread = \"all\"\nshare = [1]", "for each subreddit";
    "[[topic]]\nlabel = \"a\"\nsubreddits = [\"aa\", \"bb\"]\nread = \"all\"\nshare = [0, 5]", "from 1 to 1000";
    "[[topic]]\nlabel = \"a\"\nsubreddits = [\"aa\", \"AA\"]", "r/AA is listed twice";
};

/// Runs `labels validate` on a file with this text and returns its message.
fn refusal(program: &Program, text: &str) -> String {
    program.write("refused.toml", text);
    let ran = program.run("labels validate --pipeline refused.toml");
    assert_eq!((ran.code, ran.stdout.as_str()), (2, ""), "{}", ran.stderr);
    ran.stderr
}

#[test]
fn a_mistake_is_reported_with_its_line_and_the_nearest_key() {
    let program = Program::new();
    for (text, what) in MISTAKES {
        let message = refusal(&program, text);
        assert!(message.contains(what), "{what}: {message}");
    }
    // A name that is long or contains a newline is kept on its line.
    let name = "x".repeat(5_000);
    let message = refusal(
        &program,
        &format!("labels = [\"a\"]\n\"{name}\\n  line 1: none\" = 1\n"),
    );
    assert_eq!(message.lines().count(), 1, "{message}");
    assert!(message.len() < 500, "{message}");

    // Commands that only read labels and commands that collect report the same mistake.
    program.write("bad.toml", "nmae = 3");
    for command in ["classify", "run --source sample", "import x.ndjson"] {
        let ran = program.run(&format!("{command} --pipeline bad.toml"));
        ran.expect_exit(2, "did you mean `name`?");
    }
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
        program.write("read.toml", bytes);
        let set = program.json("labels validate --pipeline read.toml");
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
        program.write("other.toml", bytes);
        let ran = program.run("labels validate --pipeline other.toml");
        ran.expect_exit(2, what);
    }
    // Paths that are not readable pipeline files.
    for (path, what) in [
        (".", "it is a folder"),
        ("/dev/zero", "larger than 16 MiB"),
        ("nowhere.toml", "topicmill labels new"),
    ] {
        let ran = program.run(&format!("labels validate --pipeline {path}"));
        ran.expect_exit(2, what);
    }
}
