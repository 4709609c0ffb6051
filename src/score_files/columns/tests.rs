//! Tests that text and id columns are detected.

use super::*;
use crate::score_files::kept_columns::KeptColumns;
use serde_json::value::RawValue;
use topicmill_core::table;
use topicmill_tables::json;

fn names(of: &[&str]) -> Vec<Arc<str>> {
    of.iter().map(|name| (*name).into()).collect()
}

fn table(of: &[&str], reading: &Reading) -> Result<InputColumns, FilesError> {
    InputColumns::from_names(&names(of), reading, Path::new("t.csv"))
}

fn needed(of: &[&str]) -> Vec<String> {
    let columns = table(of, &Reading::default()).unwrap();
    columns.needed().iter().map(ToString::to_string).collect()
}

#[test]
fn usual_column_names_are_detected() {
    assert_eq!(needed(&["title", "ID", "Text"]), ["Text", "ID"]);
    assert_eq!(
        needed(&["id", "Title", "body", "selftext"]),
        ["Title", "selftext", "id"]
    );
    assert_eq!(needed(&["a", "review"]), ["review"]);
    assert_eq!(needed(&["id", "whatever"]), ["whatever", "id"]);
    assert_eq!(needed(&["whatever"]), ["whatever"]);
}

fn object(json: &str) -> Row {
    let members: json::Members = serde_json::from_str(json).unwrap();
    let cell = |(name, value): (String, Box<RawValue>)| (name.into(), Cell::from_raw_json(&value));
    Row {
        line: 1,
        cells: members.0.into_iter().map(cell).collect(),
        problem: None,
    }
}

fn parse(json: &str, text: &[&str]) -> Result<(String, String), String> {
    let reading = Reading {
        id: Some("id".into()),
        text: text.iter().map(ToString::to_string).collect(),
        ..Reading::default()
    };
    let row = object(json);
    let columns = InputColumns::from_row(&row, &reading);
    Ok((columns.id(&row)?.unwrap(), columns.text(&row)?))
}

#[test]
fn objects_may_have_text_in_three_forms() {
    for (json, text, expected) in table! {
        r#"{"id":"a","text":"T"}"#, &[][..], ("\"a\"", "T");
        r#"{"id":18446744073709551615,"body":" B"}"#, &["body"], ("18446744073709551615", " B");
        r#"{"id":1,"title":"T","selftext":"[removed]"}"#, &[], ("1", "T");
        r#"{"id":1,"title":"T","selftext":"B"}"#, &[], ("1", "T\n\nB");
        r#"{"id":1,"text":"X","title":"T"}"#, &[], ("1", "X");
        r#"{"id":1,"a":" A ","b":null,"d":"D"}"#, &["d", "a", "b"], ("1", "D\n\nA");
    } {
        let (id, text) = parse(json, text).unwrap();
        assert_eq!((&*id, &*text), expected, "{json}");
    }
}

#[test]
fn error_messages_about_an_object_do_not_quote_it() {
    for (json, text, problem) in table! {
        r#"{"text":"secret"}"#, &[][..], "no `id`";
        r#"{"id":null,"text":"secret"}"#, &[], "neither a string";
        r#"{"id":1.5,"text":"secret"}"#, &[], "neither a string";
        r#"{"id":123456789012345678901234567890,"text":"secret"}"#, &[], "neither a string";
        r#"{"id":1}"#, &[], "neither `text` nor `title`";
        r#"{"id":1,"text":""}"#, &[], "has an empty `text`";
        r#"{"id":1,"text":7}"#, &[], "`text` that is not a string";
        r#"{"id":1,"text":"\ud83d secret"}"#, &[], "`text` with an unpaired surrogate";
        r#"{"id":1,"text":"secret"}"#, &["body"], "no `body`";
        r#"{"id":1,"a":"","b":"x"}"#, &["a", "c"], "no `c`";
    } {
        let found = parse(json, text).unwrap_err();
        assert!(
            found.contains(problem) && !found.contains("secret"),
            "{json}: {found}"
        );
    }
}

#[test]
fn input_columns_that_collide_with_output_columns_are_renamed() {
    let mut kept = KeptColumns::new(&["score".to_owned()]);
    let row = object(r#"{"score":1.50,"input_score":[ 1 ],"id":2}"#);
    assert_eq!(
        kept.members(&row, None),
        r#""input_input_score":1.50,"input_score":[ 1 ],"id":2"#
    );
    let mut kept = KeptColumns::new(&[]);
    assert_eq!(
        kept.members(&object(r#"{"id":2}"#), Some(7)),
        r#""id":7,"input_id":2"#
    );
}
