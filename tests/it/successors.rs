//! A model that comes after another one of its name: the views, tables and screens tell the labels of both apart.

use std::fs;
use std::os::unix::fs::symlink;

use serde_json::{Value, json};

use crate::support::engine::{repository, runtime_is_here};
use crate::support::postgres::databases;
use crate::support::program::{Program, Ran};
use crate::support::rows::execute;

const SHIPPED: &str = "models/minilm-reddit-topics";
const TITLES: [&str; 4] = [
    "a new boss fight in this game",
    "how long to roast a chicken",
    "my band recorded a song",
    "three days in Lisbon without a plan",
];

/// The model that ships, by the name of `mine` in a folder, with its learned label vectors or without.
fn model(program: &Program, folder: &str, is_learned: bool) -> String {
    let dir = program.folder.path().join(folder).join("mine");
    fs::create_dir_all(&dir).unwrap();
    for file in [
        "model.onnx",
        "tokenizer.json",
        "tokenizer_config.json",
        "label_vectors.json",
    ] {
        symlink(repository(SHIPPED).join(file), dir.join(file)).unwrap();
    }
    let config = fs::read(repository(SHIPPED).join("config.json")).unwrap();
    let mut config: Value = serde_json::from_slice(&config).unwrap();
    if !is_learned {
        let block = config["zero_shot"].as_object_mut().unwrap();
        block.remove("label_vectors").unwrap();
    }
    fs::write(dir.join("config.json"), config.to_string()).unwrap();
    dir.display().to_string()
}

/// The program on a database.
struct Scene<'a> {
    program: &'a Program,
    url: &'a str,
}

impl Scene<'_> {
    fn ok(&self, words: &[&str]) -> Ran {
        self.program
            .ok(&[&["--database", self.url], words].concat())
    }

    fn json(&self, words: &[&str]) -> Value {
        let ran = self.ok(&[words, &["--format", "json"]].concat());
        serde_json::from_str(&ran.stdout).unwrap()
    }

    fn import(&self, from: usize, posts: usize) {
        let posts = (from..from + posts).map(|at| {
            let post = json!({
                "id": format!("s{at}"), "title": TITLES[at % TITLES.len()], "selftext": format!("post {at}"),
                "subreddit": "gaming", "created_utc": 1_700_000_000 + at, "topic": "gaming",
            });
            format!("{post}\n")
        });
        let posts = posts.collect::<String>();
        let file = self.program.write("posts.ndjson", posts);
        self.ok(&["import", &file]);
    }

    /// What `status` says to do next.
    fn next(&self) -> (String, String) {
        let next = self.json(&["status"])["next"].take();
        let word = |name: &str| next[name].as_str().unwrap_or_default().to_owned();
        (word("command"), word("why"))
    }
}

#[tokio::test]
async fn posts_that_only_a_later_model_labels_do_not_wait_for_classify_for_ever() {
    if !runtime_is_here("a model after another one") {
        return;
    }
    let program = Program::new();
    let (former, latter) = (
        model(&program, "former", false),
        model(&program, "latter", true),
    );
    for database in databases() {
        let scene = Scene {
            program: &program,
            url: &database.url,
        };
        scene.import(0, 4);
        scene.ok(&["classify", "--model", &former]);
        scene.ok(&["classify", "--model", &latter]);
        assert_eq!(scene.next().0, "", "every post has both");
        // What comes afterwards is labelled by the new model alone.
        scene.import(4, 2);
        // The settings name the model that ships.
        assert_eq!(
            scene.next().0,
            "topicmill classify --model DIR",
            "nobody labelled these"
        );
        scene.ok(&["classify", "--model", &latter]);
        let (command, why) = scene.next();
        assert!(
            command.starts_with("topicmill labels use "),
            "{command}: {why}"
        );
        assert!(
            why.starts_with("2 posts wait for a label of the current model"),
            "{why}"
        );
        // A monitor hears the same.
        let late = ["status", "--check", "--max-age-unlabelled", "1h"];
        execute(
            &database.url,
            "UPDATE posts SET collected_at = '2026-01-01T00:00:00+00:00'",
        )
        .await;
        let late = program.run(&[&["--database", database.url.as_str()], &late[..]].concat());
        assert_eq!(late.code, 1, "{}", late.stderr);
        assert!(late.stdout.contains(&command), "{}", late.stdout);
        // One more, and it is true again that `classify` is what is missing.
        scene.import(6, 1);
        assert_eq!(scene.next().0, "topicmill classify --model DIR");
        scene.ok(&["classify", "--model", &latter]);

        let words: Vec<&str> = command.split(' ').skip(1).collect();
        scene.ok(&words);
        assert_eq!(scene.next().0, "");
        let labelled = scene.json(&["sql", "SELECT COUNT(label) AS n FROM labeled_posts"]);
        assert_eq!(labelled[0]["n"], 7);
        // And back: the other way round, the former model lacks three.
        let other = "SELECT substr(manifest_hash, 1, 12) AS hash FROM models m \
                     WHERE NOT EXISTS (SELECT 1 FROM current_target t WHERE t.model_id = m.id)";
        let other = scene.json(&["sql", other]);
        let other = other[0]["hash"].as_str().unwrap();
        scene.ok(&["labels", "use", "sixteen-topics", "--model", other]);
        assert!(scene.next().0.starts_with("topicmill labels use "));
        scene.ok(&["classify", "--model", &former]);
        assert_eq!(scene.next().0, "");
    }
}
