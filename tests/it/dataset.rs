//! Data sets to train with, workbooks, and posts by their ids alone.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs::{self, File};
use std::process::{Command, Stdio};

use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::RowAccessor;
use serde_json::{Value, json};
use wiremock::matchers::{method, path};
use wiremock::{Mock, MockServer, Request, Respond, ResponseTemplate};

use crate::support::engine::runtime_is_here;
use crate::support::postgres::{TestDatabase, databases, sqlite};
use crate::support::program::{Program, Ran, finished, on_reddit};
use crate::support::reddit::server;

const LABELS: &str = "name = \"two\"\nmode = \"single\"\n\
    [[topic]]\nslug = \"gaming\"\nlabel = \"video games\"\nsubreddits = [\"gaming\"]\n\
    [[topic]]\nslug = \"food\"\nlabel = \"food and cooking\"\nsubreddits = [\"food\"]\n";

/// Of each story there are three posts: as it is, with another word, and as somebody posts it again.
fn stories(from: usize, to: usize) -> String {
    let mut lines = String::new();
    for i in from..to {
        let words: Vec<String> = (0..25)
            .map(|w| format!("w{}", (i * 7_919 + w * 104_729) % 5_003))
            .collect();
        let story = format!("game {} of player number {i}", words.join(" "));
        for (copy, text) in [story.clone(), story.replace("player", "friend"), story]
            .iter()
            .enumerate()
        {
            let post = json!({
                "id": format!("s{i:04}{copy}"), "title": text, "selftext": "", "subreddit": "gaming",
                "created_utc": 1_700_000_000 + i * 3_600 + copy * 60, "score": i, "num_comments": 1,
            });
            lines.push_str(&post.to_string());
            lines.push('\n');
        }
    }
    lines
}

struct Scene<'a> {
    program: Program,
    database: &'a TestDatabase,
}

impl<'a> Scene<'a> {
    fn labelled(database: &'a TestDatabase, posts: &str) -> Self {
        let scene = Self {
            program: Program::new(),
            database,
        };
        scene.add(posts);
        scene
    }

    fn add(&self, posts: &str) {
        let file = self.program.write("posts.ndjson", posts);
        self.ok(&["import", &file]);
        let file = self.program.write("two.toml", LABELS);
        self.ok(&["classify", "--pipeline", &file]);
    }

    fn run(&self, args: &[&str]) -> Ran {
        let database = ["--database", self.database.url.as_str()];
        self.program.run(&[&database, args].concat())
    }

    fn ok(&self, args: &[&str]) -> Ran {
        let ran = self.run(args);
        assert_eq!(ran.code, 0, "{args:?}: {}", ran.stderr);
        ran
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.program.folder.path().join(name)
    }

    fn jsonl(&self, name: &str) -> Vec<Value> {
        let text = fs::read_to_string(self.path(name)).unwrap();
        let lines = text.lines().map(|line| serde_json::from_str(line).unwrap());
        lines.collect()
    }

    /// The part of each post.
    fn parts(&self, args: &[&str]) -> BTreeMap<String, String> {
        self.ok(&[&["export", "parts.jsonl", "--overwrite"], args].concat());
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let rows = self.jsonl("parts.jsonl").into_iter();
        rows.map(|row| (text(&row["fullname"]), text(&row["split"])))
            .collect()
    }
}

#[test]
fn what_is_almost_the_same_is_in_one_part_and_stays_there() {
    if !runtime_is_here("what_is_almost_the_same_is_in_one_part_and_stays_there") {
        return;
    }
    let mut first: Option<BTreeMap<String, String>> = None;
    for database in databases() {
        let scene = Scene::labelled(&database, &stories(0, 120));
        let parts = scene.parts(&["--split", "60/20/20"]);
        assert_eq!(parts.len(), 360);
        let names: BTreeSet<&str> = parts.values().map(String::as_str).collect();
        assert_eq!(names, BTreeSet::from(["train", "validation", "test"]));
        for i in 0..120 {
            let of = |copy: usize| &parts[&format!("t3_s{i:04}{copy}")];
            assert!(
                of(0) == of(1) && of(1) == of(2),
                "story {i} is in {} {} {}",
                of(0),
                of(1),
                of(2)
            );
        }
        let train = parts.values().filter(|part| *part == "train").count();
        assert!((180..=252).contains(&train), "{train} of 360 are 60 %");
        // Both databases decide alike.
        let first = first.get_or_insert_with(|| parts.clone());
        assert_eq!(*first, parts);
        // More posts, and another choice of them, move nobody.
        scene.add(&stories(120, 150));
        let more = scene.parts(&["--split", "60/20/20"]);
        assert_eq!(more.len(), 450);
        for (fullname, part) in &parts {
            assert_eq!(more[fullname], *part, "{fullname}");
        }
        let fewer = scene.parts(&["--split", "60/20/20", "--where", "title LIKE '%9'"]);
        assert!(!fewer.is_empty() && fewer.len() < 100);
        for (fullname, part) in &fewer {
            assert_eq!(more[fullname], *part, "{fullname}");
        }
    }
}

#[test]
fn a_folder_has_the_files_of_each_part_and_says_so() {
    if !runtime_is_here("a_folder_has_the_files_of_each_part_and_says_so") {
        return;
    }
    for database in databases() {
        let scene = Scene::labelled(&database, &stories(0, 60));
        let told = scene.ok(&[
            "export",
            "set",
            "--split",
            "70/30",
            "--split-by",
            "time",
            "--json",
        ]);
        let told: Value = serde_json::from_str(&told.stdout).unwrap();
        let files: BTreeSet<String> = fs::read_dir(scene.path("set/data"))
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        let wanted = [
            "test-00000-of-00001.parquet",
            "train-00000-of-00001.parquet",
        ];
        assert!(files.iter().eq(wanted), "{files:?}");
        let card = fs::read_to_string(scene.path("set/README.md")).unwrap();
        for part in ["train", "test"] {
            assert!(
                card.contains(&format!(
                    "  - split: {part}\n    path: data/{part}-*.parquet\n"
                )),
                "{card}"
            );
        }
        assert!(card.contains("| outcome | train | test |"), "{card}");
        let mut rows = Vec::new();
        for (i, part) in ["train", "test"].iter().enumerate() {
            let file =
                File::open(scene.path(&format!("set/data/{part}-00000-of-00001.parquet"))).unwrap();
            let file = SerializedFileReader::new(file).unwrap();
            let read = file.get_row_iter(None).unwrap().map(Result::unwrap);
            let of: Vec<(String, String)> = read
                .map(|row| {
                    (
                        row.get_string(0).unwrap().clone(),
                        row.get_string(15).unwrap().clone(),
                    )
                })
                .collect();
            assert_eq!(told["parts"][i]["name"], *part);
            assert_eq!(told["parts"][i]["rows"], of.len());
            rows.push(of);
        }
        assert_eq!(rows[0].len() + rows[1].len(), 180);
        // Of each outcome what is in the last part is later than what is in the first. Names rise with time.
        for outcome in ["gaming", "food", "other", "unsure"] {
            let of = |part: usize| {
                let rows = rows[part].iter().filter(|(_, its)| its == outcome);
                rows.map(|(name, _)| &name[..8]).collect::<Vec<_>>()
            };
            let (train, test) = (of(0), of(1));
            if let (Some(last), Some(first)) = (train.iter().max(), test.iter().min()) {
                // A copy may have another outcome than the story that it goes with.
                let late = train.iter().filter(|name| *name > first).count();
                assert!(
                    late * 10 <= train.len(),
                    "{outcome}: {last} is behind {first}"
                );
            }
        }
        assert!(told["groups"].as_u64() >= Some(60), "{told}");
        // A part without a post has a file without rows.
        scene.ok(&[
            "export",
            "one",
            "--split",
            "98/1/1",
            "--where",
            "fullname = 't3_s00001'",
        ]);
        assert_eq!(fs::read_dir(scene.path("one/data")).unwrap().count(), 3);
    }
}

#[test]
fn a_split_that_cannot_be_is_refused() {
    if !runtime_is_here("a_split_that_cannot_be_is_refused") {
        return;
    }
    let database = sqlite();
    let scene = Scene::labelled(&database, &stories(0, 2));
    for (args, says) in [
        (&["--split", "80/10"][..], "80/10/10"),
        (&["--split", "80/10/20"], "80/10/10"),
        (&["--split", "100"], "80/10/10"),
        (&["--split", "100/0"], "80/10/10"),
        (&["--split", "a/b"], "80/10/10"),
        (&["--split-by", "time"], "--split"),
        (&["--split", "80/20", "--format", "ids"], "--format ids"),
    ] {
        let ran = scene.run(&[&["export", "x.csv"], args].concat());
        assert_eq!(ran.code, 2, "{args:?} {}", ran.stderr);
        assert!(ran.stderr.contains(says), "{args:?} {}", ran.stderr);
        assert!(!scene.path("x.csv").exists());
    }
    // Rows that come once and not the second time have no part.
    let random = [
        "export",
        "x.csv",
        "--split",
        "80/20",
        "--where",
        "random() % 2 = 0",
    ];
    let refused = (0..20).map(|_| scene.run(&[&random[..], &["--overwrite"]].concat()));
    let refused: Vec<_> = refused.filter(|ran| ran.code != 0).collect();
    assert!(!refused.is_empty());
    for ran in refused {
        assert_eq!(ran.code, 2, "{}", ran.stderr);
        assert!(ran.stderr.contains("random()"), "{}", ran.stderr);
    }
}

/// What Python's own library finds in a workbook: the cells of each row by their place, and whether there is a formula.
const UNZIP: &str = r#"
import json, sys, zipfile, xml.etree.ElementTree as tree
book = zipfile.ZipFile(sys.argv[1])
sheet = tree.fromstring(book.read("xl/worksheets/sheet1.xml"))
space = {"m": "http://schemas.openxmlformats.org/spreadsheetml/2006/main"}
rows = []
for row in sheet.iterfind(".//m:row", space):
    cells = {}
    for cell in row.iterfind("m:c", space):
        text = cell.find(".//m:t", space)
        value = cell.find("m:v", space)
        place = cell.get("r").rstrip("0123456789")
        cells[place] = text.text if text is not None else value.text if value is not None else None
    rows.append(cells)
print(json.dumps({
    "rows": rows, "formulas": len(sheet.findall(".//m:f", space)),
    "filter": sheet.find("m:autoFilter", space).get("ref"),
    "frozen": sheet.find(".//m:pane", space).get("topLeftCell"),
}))
"#;

fn workbook(path: &std::path::Path) -> Value {
    let python = Command::new("python3")
        .args(["-c", UNZIP])
        .arg(path)
        .output();
    let python = python.expect("python3 is there: it installs ONNX Runtime");
    assert!(
        python.status.success(),
        "{}",
        String::from_utf8_lossy(&python.stderr)
    );
    serde_json::from_slice(&python.stdout).unwrap()
}

#[test]
fn a_workbook_has_texts_and_no_formula() {
    if !runtime_is_here("a_workbook_has_texts_and_no_formula") {
        return;
    }
    for database in databases() {
        let long = "🎲".repeat(20_000);
        let titles = [
            "=HYPERLINK(\"http://x.test\") chicken",
            "<b>bold</b> & 'quoted' game",
            "bell \u{7} and _x0041_",
        ];
        let mut posts: String = (0..titles.len())
            .map(|i| {
                let post = json!({
                    "id": format!("x{i}"), "title": titles[i], "selftext": "", "subreddit": "gaming", "score": -5,
                    "created_utc": 1_700_000_000, "num_comments": Value::Null,
                });
                format!("{post}\n")
            })
            .collect();
        let post = json!({"id": "x9", "title": "long game", "selftext": long, "subreddit": "gaming", "created_utc": 1});
        posts += &post.to_string();
        let scene = Scene::labelled(&database, &posts);
        let ran = scene.ok(&["export", "a.xlsx"]);
        assert!(ran.stderr.contains("32,767"), "{}", ran.stderr);
        let book = workbook(&scene.path("a.xlsx"));
        assert_eq!(book["formulas"], 0);
        assert_eq!(book["frozen"], "A2");
        assert_eq!(book["filter"], "A1:Y5");
        let cell = |row: usize, column: &str| book["rows"][row][column].clone();
        assert_eq!(cell(0, "D"), "title");
        assert_eq!(cell(1, "D"), titles[0]);
        assert_eq!(cell(2, "D"), titles[1]);
        assert_eq!(
            cell(3, "D"),
            "bell _x0007_ and _x005F_x0041_",
            "as Excel writes them"
        );
        assert_eq!(cell(1, "I"), "-5");
        assert_eq!(cell(1, "J"), Value::Null);
        // 2023-11-14 22:13:20.
        let days: f64 = cell(1, "H").as_str().unwrap().parse().unwrap();
        assert!((days - 45_244.925_925_9).abs() < 1e-6, "{days}");
        let cut = cell(4, "E");
        assert_eq!(cut.as_str().unwrap().chars().count(), 16_383);
    }
}

#[test]
#[cfg(target_os = "linux")]
fn a_full_disk_leaves_no_workbook_and_no_file_of_it() {
    if !runtime_is_here("a_full_disk_leaves_no_workbook_and_no_file_of_it") {
        return;
    }
    let database = sqlite();
    let scene = Scene::labelled(&database, &stories(0, 400));
    let before = fs::read_dir(scene.program.folder.path()).unwrap().count();
    for out in ["old.xlsx", "set", "a.parquet"] {
        let script = format!(
            "trap '' XFSZ; ulimit -f 20; exec {} --database {} export {out}",
            env!("CARGO_BIN_EXE_topicmill"),
            database.url
        );
        let mut shell = Command::new("sh");
        shell
            .args(["-c", &script])
            .current_dir(scene.program.folder.path());
        let full = shell.output().unwrap();
        let stderr = String::from_utf8_lossy(&full.stderr);
        assert_eq!(full.status.code(), Some(1), "{out}: {stderr}");
        assert!(
            stderr.contains(out) && !stderr.contains("panicked"),
            "{stderr}"
        );
        let after = fs::read_dir(scene.program.folder.path()).unwrap().count();
        assert_eq!(after, before, "{out}");
    }
}

#[test]
fn of_two_exports_to_one_place_one_is_there_and_whole() {
    if !runtime_is_here("of_two_exports_to_one_place_one_is_there_and_whole") {
        return;
    }
    for database in databases() {
        let scene = Scene::labelled(&database, &stories(0, 40));
        for out in ["a.jsonl", "set"] {
            let begin = || {
                let mut command =
                    scene
                        .program
                        .command(&["--database", &database.url, "export", out]);
                command
                    .stdout(Stdio::piped())
                    .stderr(Stdio::piped())
                    .spawn()
                    .unwrap()
            };
            let both = [begin(), begin()].map(|child| finished(child.wait_with_output().unwrap()));
            let mut codes: Vec<i32> = both.iter().map(|ran| ran.code).collect();
            codes.sort_unstable();
            assert_eq!(
                codes,
                [0, 2],
                "{out}: {} {}",
                both[0].stderr,
                both[1].stderr
            );
            let rows = match out {
                "set" => {
                    let file =
                        File::open(scene.path("set/data/train-00000-of-00001.parquet")).unwrap();
                    let file = SerializedFileReader::new(file).unwrap();
                    usize::try_from(file.metadata().file_metadata().num_rows()).unwrap()
                }
                _ => scene.jsonl(out).len(),
            };
            assert_eq!(rows, 120);
        }
    }
}

/// A Reddit that shows these posts, each with the fields that differ; `null` is a post that it does not know.
struct Info(HashMap<String, Value>);

impl Respond for Info {
    fn respond(&self, request: &Request) -> ResponseTemplate {
        let query: BTreeMap<_, _> = request.url.query_pairs().collect();
        let child = |name: &str| {
            let fields = self.0.get(name)?.as_object()?;
            let mut data = json!({
                "name": name, "title": format!("the title of {name}"), "selftext": "a text", "author": "someone",
                "subreddit": "gaming", "created_utc": 1_700_000_000.0, "score": 7, "is_self": true,
                "removed_by_category": null,
            });
            for (name, value) in fields {
                data[name] = value.clone();
            }
            Some(json!({"kind": "t3", "data": data}))
        };
        let names: Vec<&str> = query["id"].split(',').collect();
        assert!(names.len() <= 100, "Reddit takes no more");
        let children: Vec<Value> = names.into_iter().filter_map(child).collect();
        let listing = json!({"kind": "Listing", "data": {"after": null, "children": children}});
        ResponseTemplate::new(200).set_body_json(listing)
    }
}

async fn showing(posts: HashMap<String, Value>) -> MockServer {
    let server = server().await;
    Mock::given(method("GET"))
        .and(path("/api/info"))
        .respond_with(Info(posts))
        .mount(&server)
        .await;
    server
}

async fn questions(server: &MockServer) -> usize {
    let requests = server.received_requests().await.unwrap();
    requests
        .iter()
        .filter(|request| request.url.path() == "/api/info")
        .count()
}

#[tokio::test(flavor = "multi_thread")]
async fn shared_ids_are_filled_again_but_for_what_is_gone() {
    for database in databases() {
        let program = Program::new();
        let mut posts: HashMap<String, Value> = (0..250)
            .map(|i| (format!("t3_a{i:03}"), json!({})))
            .collect();
        posts.insert(
            "t3_a001".into(),
            json!({"selftext": "[deleted]", "author": "[deleted]"}),
        );
        posts.insert(
            "t3_a002".into(),
            json!({"removed_by_category": "moderator", "selftext": "[removed]"}),
        );
        posts.insert("t3_a003".into(), Value::Null);
        let server = showing(posts).await;
        let run = |args: &[&str]| {
            let mut command =
                program.command(&[&["--database", database.url.as_str()], args].concat());
            finished(on_reddit(&mut command, &server.uri()).output().unwrap())
        };
        // A post that was purged here, and stays away.
        let purged = program.write("purged.txt", "t3_a004\n");
        assert_eq!(run(&["db", "create"]).code, 0);
        assert_eq!(run(&["purge", "--ids", &purged]).code, 0);
        let ids: String = (0..250).map(|i| format!("t3_a{i:03}\n")).collect();
        let half = program.write("half.txt", &ids[..8 * 120]);
        let all = program.write("all.txt", &ids);
        let ran = run(&["import", "--format", "ids", &half]);
        assert_eq!(ran.code, 0, "{}", ran.stderr);
        for word in [
            "posts=117",
            "new=116",
            "deleted=1",
            "removed=1",
            "missing=1",
            "tombstoned=1",
            "requests=2",
        ] {
            assert!(ran.stderr.contains(word), "{word}: {}", ran.stderr);
        }
        // The rest: 130 posts, and the 4 that are not here.
        let ran = run(&["import", "--format", "ids", &all]);
        assert!(
            ran.stderr.contains("known=116") && ran.stderr.contains("requests=2"),
            "{}",
            ran.stderr
        );
        assert_eq!(questions(&server).await, 4);
        let count = "SELECT COUNT(*) AS n, MIN(title) AS t, MIN(source) AS s FROM posts";
        let counted = run(&["sql", count, "--format", "ndjson"]);
        let counted: Value = serde_json::from_str(&counted.stdout).unwrap();
        assert_eq!(
            counted,
            json!({"n": 246, "t": "the title of t3_a000", "s": "reddit"})
        );
        let ran = run(&["import", "--format", "ids", &all, "--refresh"]);
        assert!(
            ran.stderr.contains("posts=247") && ran.stderr.contains("new=0"),
            "{}",
            ran.stderr
        );
        assert_eq!(questions(&server).await, 7);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn posts_beyond_the_first_five_that_are_no_whole_ones_are_counted() {
    let ids = |n: u32| -> String { (0..n).map(|i| format!("t3_b{i}\n")).collect() };
    let posts = (0..7).map(|i| (format!("t3_b{i}"), json!({"created_utc": "once"})));
    let server = showing(posts.collect()).await;
    for (n, more) in [(5, None), (7, Some("passed over 2 more"))] {
        let program = Program::new();
        let ids = program.write("ids.txt", ids(n));
        let args = ["import", "--format", "ids", &ids, "--run-json", "run.json"];
        let mut command = program.command(&args);
        let ran = finished(on_reddit(&mut command, &server.uri()).output().unwrap());
        assert_eq!(ran.code, 1, "{}", ran.stderr);
        let told = ran.stderr.matches("passed over: no `created_utc`").count();
        assert_eq!(told, 5, "{}", ran.stderr);
        match more {
            Some(more) => assert!(ran.stderr.contains(more), "{}", ran.stderr),
            None => assert!(!ran.stderr.contains("not shown"), "{}", ran.stderr),
        }
        let run = std::fs::read_to_string(program.folder.path().join("run.json")).unwrap();
        let run: Value = serde_json::from_str(&run).unwrap();
        assert_eq!(run["counts"]["rejected"], n);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn ids_without_a_key_or_with_a_mistake_say_what_to_do() {
    let program = Program::new();
    let ids = program.write("ids.txt", "t3_a1\n");
    let wrong = program.write("wrong.txt", "t3_a1\nno id!\n");
    for (args, code, says) in [
        (&[ids.as_str()][..], 3, "client_id"),
        (&[wrong.as_str()], 2, "line 2"),
        (&["missing.txt"], 2, "missing.txt"),
        (&[ids.as_str(), "--subreddit", "food"], 2, "--subreddit"),
        (
            &[ids.as_str(), "--source", "arctic-shift"],
            2,
            "--source is reddit",
        ),
    ] {
        let ran = program.run(&[&["import", "--format", "ids"], args].concat());
        assert_eq!(ran.code, code, "{args:?} {}", ran.stderr);
        assert!(ran.stderr.contains(says), "{args:?} {}", ran.stderr);
    }
    let ran = program.run(&["import", &ids, "--refresh"]);
    assert_eq!(ran.code, 2, "{}", ran.stderr);
    // What Reddit refuses is told as everywhere.
    let server = server().await;
    let refused = ResponseTemplate::new(401);
    Mock::given(path("/api/info"))
        .respond_with(refused)
        .mount(&server)
        .await;
    let mut command = program.command(&["import", "--format", "ids", &ids]);
    let ran = finished(on_reddit(&mut command, &server.uri()).output().unwrap());
    assert_eq!(ran.code, 3, "{}", ran.stderr);
    // An empty file is no mistake.
    let none = program.write("none.txt", "\n");
    let mut command = program.command(&["import", "--format", "ids", &none]);
    let ran = finished(on_reddit(&mut command, &server.uri()).output().unwrap());
    assert_eq!(ran.code, 0, "{}", ran.stderr);
}
