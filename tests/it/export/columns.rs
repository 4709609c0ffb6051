//! Tests exports of gold labels and vectors.

use super::*;

#[test]
fn gold_is_exported_and_labels_are_classes_of_the_card() {
    for program in Program::on_each_database() {
        let program = labelled(program, 5);
        for (annotator, answers) in [
            ("anna", "k000000,gaming\nk000001,food\nk000002,none\n"),
            ("ben", "k000000,gaming\nk000001,gaming\n"),
            ("carl", "k000000,food\n"),
        ] {
            program.write("answers.csv", format!("id,label\n{answers}"));
            program.ok(&format!(
                "labels gold import answers.csv --annotator {annotator}"
            ));
        }
        let expected = [
            // More than half decide.
            (json!("gaming"), json!("anna, ben, carl")),
            (Value::Null, json!("anna, ben")),
            (json!("other"), json!("anna")),
            (Value::Null, Value::Null),
            (Value::Null, Value::Null),
        ];
        program.ok("export gold.jsonl");
        let rows = program.read_lines("gold.jsonl");
        let found = rows
            .iter()
            .map(|row| (row["gold"].clone(), row["gold_by"].clone()));
        assert_eq!(found.collect::<Vec<_>>(), expected);
        let shown = program.view();
        for row in &rows {
            let shown = &shown[row["fullname"].as_str().unwrap()];
            for column in ["gold", "gold_by", "label", "label_name"] {
                assert_eq!(row[column], shown[column], "{column}");
            }
        }
        // An answer about the post's earlier text does not count.
        let edited = "UPDATE gold SET text_hash = (SELECT text_hash FROM things WHERE fullname = 't3_k000003') \
                      WHERE fullname = 't3_k000002'";
        program.execute(edited);
        assert_eq!(program.view()["t3_k000002"]["gold_by"], Value::Null);
        program.ok("export data-set");
        let files = fs::read_dir(program.path("data-set/data")).unwrap();
        let files: Vec<_> = files.map(|file| file.unwrap().file_name()).collect();
        assert_eq!(files, ["train-00000-of-00001.parquet"]);
        let card = program.read("data-set/README.md");
        let alpha = &program.json("labels gold list")["alpha"];
        let agreement = format!(
            "on {} posts: Krippendorff's alpha {:.2} (95 % interval {:.2} to {:.2}).",
            alpha["posts"],
            alpha["value"].as_f64().unwrap(),
            alpha["low"].as_f64().unwrap(),
            alpha["high"].as_f64().unwrap()
        );
        for part in [
            "  - split: train\n",
            "- n<1K\n",
            &agreement,
            "  - name: label\n    dtype:\n      class_label:\n        names:\n          '0': \"gaming\"\n          \
             '1': \"food\"\n  - name",
        ] {
            assert!(card.contains(part), "{card}");
        }
        program
            .run("export x.csv --vectors")
            .expect_exit(2, "embedding model");
    }
}

#[test]
fn vectors_are_exported_in_every_format() {
    for program in Program::on_each_database() {
        let program = program.with_default_model();
        let program = labelled(program, 7);
        for out in ["v.jsonl", "v.csv", "v.parquet"] {
            program.ok(&["export", out, "--vectors"]);
        }
        let rows = program.read_lines("v.jsonl");
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
        let mut csv = csv::Reader::from_path(program.path("v.csv")).unwrap();
        let mut columns = csv.headers().unwrap().iter();
        let column = columns.position(|name| name == "vector").unwrap();
        let records: Vec<_> = csv.records().map(Result::unwrap).collect();
        assert_eq!(records.len(), rows.len());
        for (vector, record) in vectors.iter().zip(records) {
            let numbers: Vec<f32> = serde_json::from_str(&record[column]).unwrap();
            assert_eq!(&numbers, vector);
        }
        let records = program.read_parquet("v.parquet");
        assert_eq!(records.len(), rows.len());
        for (vector, record) in vectors.iter().zip(records) {
            let Field::ListInternal(list) = &record["vector"] else {
                panic!("{record:?}")
            };
            let numbers = vector.iter().map(|x| Field::Float(*x));
            assert!(numbers.eq(list.elements().iter().cloned()));
        }
    }
}
