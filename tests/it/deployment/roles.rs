//! Tests the database roles that packaging/postgresql/roles.sql creates.

use serde_json::json;
use sqlx::migrate::MigrateDatabase;
use sqlx::{AssertSqlSafe, Connection, Executor, PgConnection};
use topicmill_core::table;

use crate::support::postgres::postgres;
use crate::support::program::{Program, RunOutput, finished};

const ROLES: &str = include_str!("../../../packaging/postgresql/roles.sql");

/// Runs SQL that a user may not have the privilege to run.
async fn try_sql(url: &str, sql: &str) -> Result<(), String> {
    let mut connection = PgConnection::connect(url).await.unwrap();
    let statement = sqlx::raw_sql(AssertSqlSafe(sql.to_owned()));
    let ran = connection.execute(statement).await;
    connection.close().await.unwrap();
    ran.map(drop).map_err(|error| format!("{sql}: {error}"))
}

/// A user for each role, on the tables of a database.
struct Users {
    program: Program,
    owner: String,
    /// Part of the names, because users belong to the entire server.
    tag: &'static str,
}

impl Users {
    const JOBS: [&str; 4] = ["reader", "collector", "worker", "annotator"];

    async fn create(owner: &str, tag: &'static str) -> Self {
        let program = Program::new().with_default_model();
        program.ok(&format!("--database {owner} db create"));
        // Run the script twice, because an upgrade repeats it.
        for _ in 0..2 {
            try_sql(owner, ROLES).await.unwrap();
        }
        let owner = owner.to_owned();
        let users = Self {
            program,
            owner,
            tag,
        };
        for job in Self::JOBS {
            let login = users.login(job);
            let sql = format!("CREATE ROLE {login} LOGIN PASSWORD 'pw' IN ROLE topicmill_{job}");
            try_sql(&users.owner, &sql).await.unwrap();
        }
        users
    }

    fn login(&self, job: &str) -> String {
        format!("topicmill_test_{job}_{}_{}", self.tag, std::process::id())
    }

    fn url(&self, job: &str) -> String {
        let (_, place) = self.owner.rsplit_once('@').unwrap();
        format!("postgres://{}:pw@{place}", self.login(job))
    }

    fn run(&self, job: &str, line: &str) -> RunOutput {
        let line = format!("-q --database {} {line}", self.url(job));
        let mut command = self.program.command(&line);
        command.env_remove("TOPICMILL__DATABASE__ALLOW_SUPERUSER");
        finished(command.output().unwrap())
    }

    async fn remove(self) {
        for job in Self::JOBS {
            let login = self.login(job);
            let sql = format!("DROP OWNED BY {login}; DROP ROLE {login}");
            try_sql(&self.owner, &sql).await.unwrap();
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn each_database_role_can_do_its_job_and_nothing_else() {
    let Some(database) = postgres() else { return };
    let users = Users::create(&database.url, "public").await;
    let post = |text: &str| {
        let post = json!({
            "id": "zz1", "title": "A title", "selftext": text, "subreddit": "food", "created_utc": 1_700_000_000,
        });
        format!("{post}\n")
    };
    users.program.write("first.ndjson", post("a"));
    users.program.write("edited.ndjson", post("b"));
    // Enough posts to use COPY.
    let many = (0..300).map(|i| post("c").replace("zz1", &format!("y{i}")));
    users.program.write("many.ndjson", many.collect::<String>());
    users.program.write("gone.txt", "t3_zz1\n");
    users.program.write(
        "minutely.toml",
        "name = \"s\"\nlabels = [\"food\", \"games\"]\n\n[[schedule]]\nname = \"minutely\"\ncron = \"* * * * *\"\n\
         stages = [\"purge --retention 2\"]\n",
    );
    users.program.write("gold.csv", "id,label\nzz1,food\n");
    for (job, line) in table! {
        "collector", "collect --source sample --limit 3";
        "collector", "collect --source sample --limit 4";
        "collector", "import first.ndjson";
        "worker", "classify";
        "collector", "import many.ndjson";
        "collector", "import edited.ndjson";
        "worker", "classify --mode multi --make-current";
        "annotator", "labels gold import gold.csv";
        "collector", "purge --ids gone.txt";
        "collector", "import first.ndjson --again";
        "collector", "purge --retention 1";
        "collector", "schedule run --once --pipeline minutely.toml";
        "reader", "schedule list --pipeline minutely.toml";
        "reader", "sql 'SELECT COUNT(*) FROM labeled_posts'";
        "reader", "export labelled.csv";
        "reader", "report report.html";
        "reader", "status";
    } {
        let ran = users.run(job, line);
        assert_eq!(ran.code, 0, "{job} {line}: {}", ran.stderr);
    }
    for (job, line) in [
        ("reader", "collect --source sample"),
        ("reader", "classify"),
        ("worker", "collect --source sample"),
        ("worker", "purge --retention 1"),
        ("collector", "classify"),
        ("reader", "serve --review --listen 127.0.0.1:0"),
    ] {
        let ran = users.run(job, line);
        assert_eq!(ran.code, 4, "{job} {line}: {}", ran.stderr);
        // The message names the script that grants privileges on the tables.
        ran.expect_stderr_all(&["permission denied", "roles.sql"]);
    }
    for job in Users::JOBS {
        users
            .run(job, "labels drop current --yes")
            .expect_exit(4, "only the owner");
    }
    assert_role_is_limited(&users).await;
    users.remove().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn database_roles_work_in_another_schema() {
    let Some(database) = postgres() else { return };
    sqlx::Postgres::create_database(&database.url)
        .await
        .unwrap();
    try_sql(&database.url, "CREATE SCHEMA apart").await.unwrap();
    let owner = format!("{}?options=-csearch_path%3Dapart", database.url);
    let users = Users::create(&owner, "apart").await;
    for (job, line) in [
        ("collector", "collect --source sample --limit 3"),
        ("worker", "classify"),
        ("reader", "sql 'SELECT COUNT(*) FROM labeled_posts'"),
    ] {
        users.run(job, line).expect_code(0);
    }
    let public = "DO $$ BEGIN ASSERT to_regclass('public.posts') IS NULL; END $$";
    try_sql(&users.owner, public).await.unwrap();
    users.remove().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_can_fit_labels_and_a_fit_that_fails_leaves_no_label_set() {
    let Some(database) = postgres() else { return };
    let program = Program::on(database).with_default_model().labelled(30);
    let users = Users::create(&program.url(), "fit").await;
    let gold = program.gold_file("gold.csv", |i| i.is_multiple_of(3).then_some("none"));
    let import = format!("labels gold import {gold}");
    users.run("annotator", &import).expect_code(0);
    let fit = "labels fit --make-current";
    let revoke = "REVOKE INSERT ON cross_fitted FROM topicmill_worker";
    try_sql(&users.owner, revoke).await.unwrap();
    users.run("worker", fit).expect_exit(4, "cross_fitted");
    assert_eq!(program.count("label_sets"), 1);
    try_sql(&users.owner, ROLES).await.unwrap();
    users.run("annotator", fit).expect_exit(4, "label_sets");
    // The second fit replaces the first.
    for _ in 0..2 {
        users.run("worker", fit).expect_code(0);
    }
    assert_eq!(program.count("label_sets"), 2);
    assert_eq!(program.count("cross_fitted"), 30);
    users.remove().await;
}

async fn assert_role_is_limited(users: &Users) {
    let answer = "INSERT INTO gold (fullname, annotator, text_hash, chosen, source, answered_at) \
                  SELECT fullname, 'me', text_hash, 'random', 'review', now() FROM things LIMIT 1";
    try_sql(&users.url("annotator"), answer).await.unwrap();
    try_sql(&users.url("annotator"), "DELETE FROM gold")
        .await
        .unwrap();
    for (job, sql) in [
        ("annotator", "UPDATE things SET title = ''"),
        ("reader", answer),
        ("worker", "UPDATE things SET title = ''"),
        ("worker", "DELETE FROM things"),
        ("worker", "DELETE FROM tombstones"),
        ("collector", "UPDATE classifications SET label = ''"),
        ("collector", "DELETE FROM gold"),
        ("reader", "UPDATE scheduled_runs SET status = 'done'"),
        ("collector", "DROP TABLE things"),
    ] {
        let why = try_sql(&users.url(job), sql).await.unwrap_err();
        let refused = why.contains("permission denied") || why.contains("must be owner");
        assert!(refused, "{job}: {why}");
    }
    assert_stored_values_can_be_read(users).await;
    // Only a role that stores posts may read the key of the author hashes; the rest of the table is readable.
    for (job, keys) in [
        ("reader", 0),
        ("annotator", 0),
        ("worker", 0),
        ("collector", 1),
    ] {
        let check = format!(
            "DO $$ BEGIN ASSERT (SELECT COUNT(*) FROM meta WHERE key = 'author_key') = {keys}; \
             ASSERT EXISTS (SELECT 1 FROM meta WHERE key <> 'author_key'); END $$"
        );
        try_sql(&users.url(job), &check).await.unwrap();
    }
    // Tables that an upgrade adds are readable immediately.
    try_sql(&users.owner, "CREATE TABLE added (x INT)")
        .await
        .unwrap();
    for job in Users::JOBS {
        try_sql(&users.url(job), "SELECT * FROM added")
            .await
            .unwrap();
        try_sql(&users.url(job), "DELETE FROM added")
            .await
            .unwrap_err();
    }
}

/// Asserts that no role can store a value that topicmill cannot read.
async fn assert_stored_values_can_be_read(users: &Users) {
    let answer = |hash: &str, chosen: &str, source: &str, time: &str| {
        format!(
            "INSERT INTO gold (fullname, annotator, text_hash, chosen, source, answered_at) \
             SELECT fullname, 'me', {hash}, '{chosen}', '{source}', '{time}' FROM things LIMIT 1"
        )
    };
    let mut rejected = vec![
        answer("'\\x00'::bytea", "random", "review", "2026-01-01"),
        answer("text_hash", "guess", "review", "2026-01-01"),
        answer("text_hash", "random", "psql", "2026-01-01"),
    ];
    for time in ["infinity", "-infinity", "0044-03-15 BC", "290000-01-01"] {
        rejected.push(answer("text_hash", "random", "review", time));
        rejected.push(format!("UPDATE things SET checked_at = '{time}'"));
    }
    for sql in rejected {
        let why = try_sql(&users.url("annotator"), &sql).await.unwrap_err();
        assert!(why.contains("check constraint"), "{why}");
    }
    // The other roles may write other times.
    let unchecked = "DO $$ BEGIN ASSERT NOT EXISTS (SELECT 1 FROM information_schema.columns c \
         JOIN information_schema.tables t USING (table_schema, table_name) \
         WHERE c.table_schema = 'public' AND c.data_type LIKE 'timestamp%' AND c.domain_name IS NULL \
           AND t.table_type = 'BASE TABLE' AND c.table_name <> '_sqlx_migrations'); END $$";
    try_sql(&users.owner, unchecked).await.unwrap();
}
