//! Tests posts that fit no label: the background of a pipeline file, and its effect on the store, on files, and on
//! relabelling.

use serde_json::{Value, json};

use crate::support::builders;
use crate::support::engine::repository;
use crate::support::program::Program;

const GAMING: (&str, &str) = ("gaming", "video games");
const FOOD: (&str, &str) = ("food", "food and cooking");
/// The number of posts; the last has the text of the first.
const POSTS: usize = 31;
const BACKGROUND: &str = "background = \"reddit\"";
const NLI: &str = "tests/it/fixtures/models/tiny-bert-nli";

fn pipeline(settings: &str, labels: &[(&str, &str)]) -> String {
    builders::pipeline("t", settings, labels)
}

/// Returns NDJSON of posts about games, food and music. No label fits those about music.
fn posts() -> String {
    builders::lines(POSTS, POSTS - 1)
}

/// Returns the program with these posts, unlabelled.
fn with_posts() -> Program {
    let program = Program::new().with_default_model();
    program.import(&posts());
    program
}

const OUTCOMES: &str =
    "SELECT outcome, COUNT(*) AS posts FROM labeled_posts GROUP BY outcome ORDER BY outcome";

#[test]
fn an_off_topic_post_is_labelled_other() {
    let program = with_posts();
    program.pipeline("bare", "", &[GAMING, FOOD]);
    program.classify("--pipeline bare.toml");
    let all = program.rows(OUTCOMES);
    assert_eq!(
        all.as_array().unwrap().len(),
        2,
        "music gets a label: {all}"
    );

    program.pipeline("with", BACKGROUND, &[GAMING, FOOD]);
    let done = program.classify("--pipeline with.toml");
    // The vectors of the texts are stored, so the background needs no inference.
    let counts = ["pairs", "posts", "other", "unsure"].map(|count| done[count].as_u64().unwrap());
    assert_eq!(counts, [0, 31, 10, 0]);
    assert_eq!(
        program.rows(OUTCOMES),
        json!([["food", 10], ["gaming", 11], ["other", 10]])
    );
    let shown = program.rows(
        "SELECT (SELECT COUNT(*) FROM post_scores) AS scores, \
                (SELECT COUNT(DISTINCT label) FROM post_scores) AS labels, \
                (SELECT COUNT(*) FROM labeled_posts WHERE outcome = 'other' AND abstained AND label IS NULL) AS \
                other, (SELECT COUNT(*) FROM uncertain_posts WHERE outcome = 'other' AND margin >= 0.2) AS \
                uncertain, (SELECT CAST(SUM(posts) AS BIGINT) FROM topic_daily WHERE outcome = 'other') AS daily, \
                (SELECT background FROM label_sets WHERE background IS NOT NULL) AS background",
    );
    assert_eq!(shown, json!([[2 * POSTS, 2, 10, 0, 10, "reddit@1"]]));
    let status = program.json("status");
    assert_eq!(status["backlog"]["other"], 10);
    assert_eq!(status["backlog"]["unsure"], 0);
    // The stored version of the background matches the file's.
    let same = program.ok("labels diff current with.toml").stdout;
    assert!(same.contains("reddit@1"), "{same}");
    let nothing = program.classify("--pipeline with.toml");
    assert_eq!(nothing["posts"], 0);
    assert_eq!(nothing["pairs"], 0);
    // The earlier labels become current again and are unchanged.
    program.classify("--pipeline bare.toml");
    assert_eq!(program.rows(OUTCOMES), all);
}

#[test]
fn stored_logits_reproduce_scores_in_each_mode_for_each_kind_of_model() {
    for model in ["models/minilm-reddit-topics", NLI] {
        let model = repository(model);
        for mode in ["single", "multi"] {
            let program = with_posts();
            let file = pipeline(BACKGROUND, &[GAMING, FOOD]).replace("single", mode);
            program.write("strict.toml", format!("threshold = 0.97\n{file}"));
            program.write("with.toml", file);
            let flags = format!("--model {} --pipeline", model.display());
            let first = program.classify(&format!("{flags} with.toml"));
            assert_eq!(first["pairs"], 3 * (POSTS - 1), "{flags}");
            let again = program.classify(&format!("{flags} strict.toml"));
            assert_eq!(again["posts"], POSTS, "{flags}");
            assert_eq!(again["pairs"], 0, "{flags}");
            let same_label = "label_scores a JOIN label_scores b ON b.fullname = a.fullname \
                AND b.position = a.position AND b.model_id = a.model_id AND b.label_set_id > a.label_set_id";
            assert_eq!(program.count(same_label), 2 * POSTS as u64);
            let apart = format!("SELECT MAX(ABS(a.score - b.score)) FROM {same_label}");
            let apart = program.scalar(&apart).as_f64().unwrap();
            assert!(apart < 1e-9, "{mode}, {flags}: {apart}");
            let same = "classifications a JOIN classifications b ON b.fullname = a.fullname \
                 WHERE a.label_set_id < b.label_set_id AND a.other = b.other";
            // The threshold does not decide which posts are `other`.
            assert_eq!(program.count(same), POSTS as u64);
        }
    }
}

#[test]
fn a_shortlist_excludes_labels_and_keeps_the_background() {
    let program = with_posts();
    program.pipeline("with", BACKGROUND, &[GAMING, FOOD, ("travel", "travel")]);
    let (nli, small) = (repository(NLI), repository("models/minilm-reddit-topics"));
    let done = program.classify(&format!(
        "--pipeline with.toml --model {} --shortlist 1 --small-model {}",
        nli.display(),
        small.display()
    ));
    // Each text costs one pair, for its shortlisted label. The ten texts about music, and a few others, cost another
    // pair, because the small model ranks the background first.
    let pairs = done["pairs"].as_u64().unwrap();
    let texts = POSTS as u64 - 1;
    assert!((texts + 10..texts + 15).contains(&pairs), "{done}");
}

#[test]
fn score_reports_the_outcome_of_each_text() {
    let program = Program::new().with_default_model();
    program.pipeline("p", BACKGROUND, &[GAMING, FOOD]);
    program.write("posts.ndjson", posts());
    let message = program
        .ok("score posts.ndjson out.ndjson --pipeline p.toml")
        .stderr;
    let rows = program.read_lines("out.ndjson");
    assert_eq!(rows.len(), POSTS);
    for (i, row) in rows.iter().enumerate() {
        let expected = ["gaming", "food", "other"][i % (POSTS - 1) % 3];
        assert_eq!(row["outcome"], expected, "{row}");
        let label = (expected != "other").then_some(expected);
        assert_eq!(row["label"].as_str(), label);
        assert_eq!(row["abstained"], label.is_none());
        assert_eq!(row["scores"].as_object().unwrap().len(), 2);
    }
    // The topics of the background that are left out, because a label has them.
    assert!(message.contains("video games"), "{message}");
    assert!(message.contains("food and drink"), "{message}");
}

#[test]
fn an_invalid_background_is_rejected() {
    let program = Program::new().with_default_model();
    program.write(
        "bad.toml",
        "name = \"x\"\nversion = 1\nweight = 1.0\n[[topic]]\nlabel = \" \"\n",
    );
    program.write("blank.toml", "\n");
    let chess = "background = \"reddit\"\nbackground_without = [\"chess\"]";
    for (settings, label, message) in [
        ("background = \"blank.toml\"", FOOD, "the file is empty"),
        ("background = \"nowhere.toml\"", FOOD, "(os error 2)"),
        ("background = \"redit\"", FOOD, "use \"reddit\""),
        ("background = \"bad.toml\"", FOOD, "is empty"),
        ("background = 3", FOOD, "line 3, column 14"),
        (chess, FOOD, "no topic `chess`"),
        (BACKGROUND, ("other", "the rest"), "a different slug"),
    ] {
        program.pipeline("p", settings, &[label]);
        let ran = program.run("labels validate --pipeline p.toml");
        ran.expect_exit(2, message);
    }
}

#[test]
fn validate_counts_the_topics_of_the_background_and_reports_one_that_contains_all_labels() {
    let program = Program::new().with_default_model();
    let german = ("spiele", "Videospiele");
    let without = format!("{BACKGROUND}\nbackground_without = [\"video games\"]");
    for (settings, topics) in [(BACKGROUND, "34 topics"), (&without, "33 topics")] {
        program.pipeline("p", settings, &[german]);
        let ran = program.run("labels validate --pipeline p.toml");
        ran.expect_exit(0, topics);
    }
    // A topic that contains all labels of a study takes their posts.
    let study = [
        ("injury", "injury and pain"),
        ("gear", "gear and equipment"),
        ("nutrition", "food and nutrition"),
        ("training", "training and technique"),
    ];
    let without = format!("{BACKGROUND}\nbackground_without = [\"fitness\"]");
    for (settings, is_warned) in [(BACKGROUND, true), (&without, false)] {
        program.pipeline("p", settings, &study);
        let ran = program.ok("labels validate --pipeline p.toml");
        let warned = ran.stderr.contains("background_without = [\"fitness\"]");
        assert_eq!(warned, is_warned, "{}", ran.stderr);
    }
}

#[test]
fn no_background_and_a_background_named_none_are_the_same_version() {
    let program = Program::new().with_default_model();
    let hash = |settings: &str| {
        program.pipeline("p", settings, &[FOOD]);
        program.json("labels validate --pipeline p.toml")["hash"].take()
    };
    assert_eq!(hash("background = \"none\""), hash(""));
}

#[test]
fn a_text_that_fits_no_command_line_label_gets_none_from_an_embedding_model() {
    let program = Program::new().with_default_model();
    let texts = "The weather is nice\nHow to roast a chicken with lemon\n";
    program.write("texts.txt", texts);
    let score = "score texts.txt - --label cooking --label football";
    // Each text's outcome, the sum of its scores, and the background that the log names.
    let scored = |more: &str| -> (Vec<Value>, f64, bool) {
        let ran = program.ok(&format!("{score} {more}"));
        let rows = ran
            .stdout
            .lines()
            .map(|line| serde_json::from_str(line).unwrap());
        let rows: Vec<Value> = rows.collect();
        let scores =
            ["cooking", "football"].map(|label| rows[0]["scores"][label].as_f64().unwrap());
        let outcomes = rows.into_iter().map(|mut row| row["outcome"].take());
        (
            outcomes.collect(),
            scores.iter().sum(),
            ran.stderr.contains("reddit@1"),
        )
    };
    let (outcomes, _, named) = scored("");
    assert_eq!(
        (outcomes, named),
        (vec!["other".into(), "cooking".into()], true)
    );
    let (outcomes, _, named) = scored("--background none");
    assert_eq!(
        (outcomes, named),
        (vec!["cooking".into(), "cooking".into()], false)
    );
    let nli = format!("--model {}", repository(NLI).display());
    // The scores of the reference pipeline add up to 1.
    let (_, sum, named) = scored(&nli);
    assert!((sum - 1.0).abs() < 1e-6 && !named, "{sum}");
    let (_, sum, named) = scored(&format!("{nli} --background reddit"));
    assert!(sum < 0.9 && named, "{sum}");
    let ran = program.run(&format!("{score} --background nowhere.toml"));
    ran.expect_exit(2, "`nowhere.toml`");
}
