//! Tests exports of gold labels and vectors.

use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn gold_is_exported_and_labels_are_classes_of_the_card() {
    if !has_onnx_runtime("gold_is_exported_and_labels_are_classes_of_the_card") {
        return;
    }
    for database in databases() {
        let program = Program::with_database(&database.url);
        let texts = [
            "the boss of the third level has a shield that breaks after nine hits",
            "which knife do you use to cut onions without crying into the soup",
            "my neighbour plays the trumpet at night and nobody seems to mind it",
            "a patch of the racing game has removed my favourite car from it",
            "how long does bread have to rest before it goes into the oven",
        ];
        let lines = texts.iter().enumerate().map(|(i, text)| {
            let post = json!({
                "id": format!("k{i}"), "title": text, "selftext": "", "subreddit": "mixed",
                "created_utc": 1_700_000_000 + i,
            });
            format!("{post}\n")
        });
        let posts = program.write("posts.ndjson", lines.collect::<String>());
        let labels = program.write("two.toml", LABELS);
        let scene = Scene { program };
        scene.ok(&["import", &posts]);
        scene.ok(&["classify", "--pipeline", &labels]);
        scene.ok(&["export", "unchecked"]);
        let files = fs::read_dir(scene.path("unchecked/data")).unwrap();
        let files: Vec<_> = files.map(|file| file.unwrap().file_name()).collect();
        assert_eq!(files, ["train-00000-of-00001.parquet"]);
        let card = fs::read_to_string(scene.path("unchecked/README.md")).unwrap();
        for part in [
            "  - split: train\n",
            "| language | not detected",
            "- n<1K\n",
        ] {
            assert!(card.contains(part), "{card}");
        }
        for (annotator, answers) in [
            ("anna", "id,label\nk0,gaming\nk1,food\nk2,none\n"),
            ("ben", "id,label\nk0,gaming\nk1,gaming\n"),
        ] {
            let answers = scene.program.write("answers.csv", answers);
            scene.ok(&[
                "labels",
                "gold",
                "import",
                &answers,
                "--annotator",
                annotator,
            ]);
        }
        let expected = [
            (json!("gaming"), json!("anna, ben")),
            // The annotators disagree.
            (Value::Null, json!("anna, ben")),
            (json!("other"), json!("anna")),
            (Value::Null, Value::Null),
            (Value::Null, Value::Null),
        ];
        scene.ok(&["export", "gold.jsonl"]);
        let rows = scene.jsonl("gold.jsonl");
        let found = rows
            .iter()
            .map(|row| (row["gold"].clone(), row["gold_by"].clone()));
        assert_eq!(found.collect::<Vec<_>>(), expected);
        let shown = scene.view();
        for row in &rows {
            let shown = &shown[row["fullname"].as_str().unwrap()];
            for column in ["gold", "gold_by", "label", "label_name"] {
                assert_eq!(row[column], shown[column], "{column}");
            }
        }
        // An answer about the post's earlier text does not count.
        let edited = "UPDATE gold SET text_hash = (SELECT text_hash FROM posts WHERE fullname = 't3_k3') WHERE \
            fullname = 't3_k2'";
        database.run(edited).await;
        assert_eq!(scene.view()["t3_k2"]["gold_by"], Value::Null);
        scene.ok(&["export", "data-set"]);
        let card = fs::read_to_string(scene.path("data-set/README.md")).unwrap();
        let classes = [
            "  - name: label",
            "    dtype:",
            "      class_label:",
            "        names:",
            "          '0': \"gaming\"",
            "          '1': \"food\"",
            "  - name",
        ];
        let classes = &classes.join("\n");
        assert!(card.contains(classes), "{card}");
        scene.refused(&["export", "x.csv", "--vectors"], &["embedding model"]);
    }
}

#[test]
fn vectors_are_exported_in_every_format() {
    if !has_onnx_runtime("vectors_are_exported_in_every_format") {
        return;
    }
    for database in databases() {
        let program = Program::with_database(&database.url).with_default_model();
        let texts = program.write("posts.ndjson", posts(7));
        let labels = program.write("two.toml", LABELS);
        let scene = Scene { program };
        scene.ok(&["import", &texts]);
        scene.ok(&["classify", "--pipeline", &labels]);
        for out in ["v.jsonl", "v.csv", "v.parquet"] {
            scene.ok(&["export", out, "--vectors"]);
        }
        let rows = scene.jsonl("v.jsonl");
        let vectors: Vec<Vec<f32>> = rows
            .iter()
            .map(|row| serde_json::from_value(row["vector"].clone()).unwrap())
            .collect();
        for vector in &vectors {
            let length: f32 = vector.iter().map(|x| x * x).sum();
            assert!(
                vector.len() == 384 && (length - 1.0).abs() < 1e-4,
                "{length}"
            );
        }
        let mut csv = csv::Reader::from_path(scene.path("v.csv")).unwrap();
        let column = csv
            .headers()
            .unwrap()
            .iter()
            .position(|name| name == "vector");
        for (vector, record) in vectors.iter().zip(csv.records().map(Result::unwrap)) {
            let read: Vec<f32> = serde_json::from_str(&record[column.unwrap()]).unwrap();
            assert_eq!(&read, vector);
        }
        let file = File::open(scene.path("v.parquet")).unwrap();
        let file = SerializedFileReader::new(file).unwrap();
        let column = column.unwrap();
        let mut count = 0;
        for (vector, read) in vectors.iter().zip(file.get_row_iter(None).unwrap()) {
            let read = read.unwrap();
            let list = read.get_list(column).unwrap().elements().iter();
            let read: Vec<f32> = list
                .map(|field| match field {
                    parquet::record::Field::Float(x) => *x,
                    other => panic!("{other}"),
                })
                .collect();
            assert_eq!(&read, vector);
            count += 1;
        }
        assert_eq!(count, rows.len());
    }
}
