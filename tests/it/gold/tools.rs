//! Tests answers of other tools: tasks for Label Studio, and the files that annotation tools export.

use super::*;

const EXPORT: &str = "export tasks.json --format label-studio";

#[test]
fn tasks_for_label_studio_have_a_random_part_and_the_labels_as_suggestions() {
    let program = labelled(40);
    let output = program.ok(&format!("{EXPORT} --limit 10 --json")).json();
    assert_eq!([&output["tasks"], &output["random"]], [10, 2]);
    let config = program.read("tasks.xml");
    let choice = "<Choice value=\"food and cooking\" hotkey=\"2\"/>";
    assert!(config.contains(choice), "{config}");
    let tasks = program.read_json("tasks.json");
    assert_eq!(tasks[0]["data"]["fullname"], "t3_k00000");
    let suggested = &tasks[0]["predictions"][0]["result"][0];
    assert_eq!(suggested["value"]["choices"], json!(["video games"]));
    for wrong in [
        "",
        "--overwrite --label food",
        "--overwrite --random-share 2",
    ] {
        program.run(&format!("{EXPORT} {wrong}")).expect_code(2);
    }
}

/// Exports ten tasks and imports them as answered by Ada: one suggestion is changed, one task is skipped, and the other
/// suggestions are accepted.
fn answered_in_label_studio(program: &Program) {
    program.ok(&format!("{EXPORT} --limit 10"));
    let mut tasks = program.read_json("tasks.json");
    for (place, task) in tasks.as_array_mut().unwrap().iter_mut().enumerate() {
        let mut result = task["predictions"][0]["result"][0].clone();
        if place == 3 {
            result["value"]["choices"] = json!(["none of these"]);
        }
        task["id"] = json!(place + 1);
        task["annotations"] = json!([{
            "id": place, "completed_by": {"id": 1, "email": "ada@example.org"}, "result": [result],
            "was_cancelled": place == 4, "updated_at": "2026-11-20T08:00:00.123456Z",
        }]);
    }
    program.write("project.json", tasks.to_string());
    program.ok("labels gold import project.json");
}

#[test]
fn answers_from_label_studio_are_imported_and_evaluated() {
    let program = labelled(40);
    answered_in_label_studio(&program);
    let listed = program.listed_gold();
    assert_eq!(listed["answers"], 9);
    assert_eq!(listed["annotators"], json!({"ada@example.org": 9}));
    assert_eq!(listed["labels"]["(none of these)"], 1);
    let found = program.json("labels evaluate --gold db");
    assert_eq!(found["sample"], "random");
    assert_eq!(found["all_answers"]["posts"], 9);
    assert_eq!(found["all_answers"]["outcome"]["of"], 8);
    // Answered posts are not exported again.
    program.ok(&format!("{EXPORT} --overwrite --random-share 0"));
    let again = program.read_json("tasks.json");
    assert_eq!(again.as_array().unwrap().len(), 31);
}

#[test]
fn files_of_annotation_tools_are_read_and_named() {
    let prodigy = ["accept", "REJECT", "ignore"].map(|answer| {
        let task = json!({
            "meta": {"id": "k00000"}, "accept": ["food"], "answer": answer, "_task_hash": 1, "_annotator_id": "bo",
        });
        format!("{task}\n")
    });
    let argilla = json!({
        "id": "t3_k00000", "status": "completed", "text": "x", "topic.responses": ["food", "music", "music"],
        "topic.responses.users": ["bo", "cy", "di"], "topic.responses.status": ["submitted", "discarded", "draft"],
        "topic.suggestion": "music",
    });
    let nested = json!([{
        "id": "t3_k00000", "fields": {"text": "x"}, "suggestions": {"topic": {"value": "music"}}, "_server_id": "1",
        "responses": {"topic": [{"value": "food", "user_id": "bo"}]},
    }]);
    let table = "id,topic.responses,topic.responses.users\nk00000,['food'],['bo']\n";
    let program = labelled(12);
    for (tool, text) in table! {
        "Prodigy", prodigy.concat();
        "Argilla", argilla.to_string();
        "Argilla", nested.to_string();
        "Argilla", table.to_owned();
        "doccano", DOCCANO.to_owned();
    } {
        let ran = program.import_gold(&text, "");
        ran.expect_exit(0, tool);
        expect_one_answer(&program, &text);
    }
}

/// A row with an answer and one without, as doccano exports them if each text was imported with its fullname.
const DOCCANO: &str = "{\"id\":7,\"text\":\"x\",\"label\":[\"food\"],\"Comments\":[],\"fullname\":\"t3_k00000\"}\n\
    {\"id\":8,\"text\":\"x\",\"label\":[],\"Comments\":[],\"fullname\":\"t3_k00001\"}\n";

#[test]
fn doccanos_own_numbers_are_not_taken_for_posts() {
    let numbered = DOCCANO.replace(",\"fullname\":\"t3_k00000\"", "");
    let ran = labelled(12).import_gold(&numbered, "");
    ran.expect_exit(2, "from doccano");
}

#[test]
fn files_without_a_tool_may_name_posts_by_links_or_keys() {
    let link = "https://www.reddit.com/r/x/comments/k00000/title/";
    let program = labelled(12);
    for text in [
        &format!("ID,Label,Annotator\n{link},['food'],bo\n,,\n ,\"\",\n"),
        &format!("id,label\n{link},\"[\"\"food\"\"]\"\n"),
        "{\"k00000\": {\"label\": \"food\"}}",
        "{}\n{\"id\": \"k00000\", \"label\": \"food\"}\n{\"id\": \"\"}\n",
    ] {
        program.imported_gold(text, "--annotator bo");
        expect_one_answer(&program, text);
    }
}

/// Expects that the only answer is food, and removes it.
#[track_caller]
fn expect_one_answer(program: &Program, text: &str) {
    let answers = program.rows("SELECT fullname, label FROM gold");
    assert_eq!(answers, json!([["t3_k00000", "food"]]), "{text}");
    program.execute("DELETE FROM gold");
}
