//! Cells into lists of labels.

use super::*;

fn of(cell: &Cell) -> Result<Option<Vec<String>>, String> {
    let labels = RowLabels {
        column: "labels".into(),
        separator: ',',
    };
    labels.of(Some(cell))
}

fn json(json: &str) -> Result<Option<Vec<String>>, String> {
    of(&Cell::Json(json.to_owned()))
}

fn text(text: &str) -> Result<Option<Vec<String>>, String> {
    of(&Cell::Text(text.to_owned()))
}

#[test]
fn labels_are_a_list_or_a_text_with_separators() {
    let list = |labels: &[&str]| Ok(Some(labels.iter().map(ToString::to_string).collect()));
    assert_eq!(json(r#"["a b", " c "]"#), list(&["a b", "c"]));
    assert_eq!(json(r#""a b, c""#), list(&["a b", "c"]));
    assert_eq!(text("a b, c,"), list(&["a b", "c"]));
    assert_eq!(text(r#" ["a, b", "c"] "#), list(&["a, b", "c"]));
    assert_eq!(text("one"), list(&["one"]));
    let semicolons = RowLabels {
        column: "l".into(),
        separator: ';',
    };
    let cell = Cell::Text("a, b; c".into());
    assert_eq!(semicolons.of(Some(&cell)), list(&["a, b", "c"]));
    let many: Vec<String> = (0..1_000).map(|i| format!("label {i}")).collect();
    let found = json(&serde_json::to_string(&many).unwrap());
    assert_eq!(found, Ok(Some(many)));
}

#[test]
fn a_row_without_labels_has_those_of_the_run() {
    assert_eq!(of(&Cell::Null), Ok(None));
    assert_eq!(text("  "), Ok(None));
    let labels = RowLabels {
        column: "labels".into(),
        separator: ',',
    };
    assert_eq!(labels.of(None), Ok(None));
}

#[test]
fn labels_that_cannot_be_used_are_told_without_quoting_them() {
    let many: Vec<String> = (0..=1_000).map(|i| format!("secret {i}")).collect();
    let long = serde_json::to_string(&["secret".repeat(400)]).unwrap();
    for (found, problem) in [
        (json("[]"), "has no label in its `labels`"),
        (json(r#""""#), "has no label in its `labels`"),
        (text(", ,"), "has no label in its `labels`"),
        (json("7"), "neither a list of texts nor a text"),
        (
            json(r#"{"secret":1}"#),
            "neither a list of texts nor a text",
        ),
        (
            json(r#"["secret", 7]"#),
            "neither a list of texts nor a text",
        ),
        (json(r#"["\ud83d"]"#), "neither a list of texts nor a text"),
        (json(r#"["a", null]"#), "neither a list of texts nor a text"),
        (text(r#"["secret", "#), "no list of texts as JSON"),
        (json(r#"["secret", " "]"#), "an empty label 2"),
        (json(r#"["secret", "b", "secret "]"#), "its label 3 twice"),
        (json(&long), "longer than 2000 bytes"),
        (
            json(&serde_json::to_string(&many).unwrap()),
            "has 1001 labels in its `labels`, and 1000 are the most",
        ),
    ] {
        let found = found.unwrap_err();
        assert!(
            found.contains(problem) && !found.contains("secret"),
            "{found}"
        );
    }
}
