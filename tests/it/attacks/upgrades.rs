//! Against upgrades: migrations that nobody hears of, or that take rights away.

use sqlx::{AssertSqlSafe, Connection, Executor, PgConnection};

use crate::migrations::database_of;
use crate::support::postgres::{databases, postgres};
use crate::support::program::Program;

#[tokio::test]
async fn roles_that_may_read_the_views_may_read_them_after_an_upgrade_from_any_version() {
    for version in [1, 7, 9, 10] {
        let Some(database) = postgres() else { return };
        let url = database.url.as_str();
        database_of(url, version).await;
        let name = url.rsplit_once('/').unwrap().1;
        let role = format!("reader_{name}");
        let mut admin = PgConnection::connect(url).await.unwrap();
        let views = [
            "labeled_posts",
            "topic_agreement",
            "topic_daily",
            "uncertain_posts",
            "post_scores",
        ];
        admin
            .execute(AssertSqlSafe(format!(
                "CREATE ROLE {role}; GRANT SELECT ON {} TO {role}; GRANT SELECT (title) ON posts TO {role}; \
                 GRANT SELECT ON topic_daily TO PUBLIC",
                views.join(", ")
            )))
            .await
            .unwrap();
        database.open().await.close().await.unwrap();
        for view in views {
            let may: bool = sqlx::query_scalar("SELECT has_table_privilege($1, $2, 'SELECT')")
                .bind(&role)
                .bind(view)
                .fetch_one(&mut admin)
                .await
                .unwrap();
            assert!(may, "{view} from {version}");
        }
        let public: bool =
            sqlx::query_scalar("SELECT has_table_privilege('public', 'topic_daily', 'SELECT')")
                .fetch_one(&mut admin)
                .await
                .unwrap();
        assert!(public);
        // Nobody gained a right.
        let gained: bool = sqlx::query_scalar("SELECT has_table_privilege($1, 'posts', 'SELECT')")
            .bind(&role)
            .fetch_one(&mut admin)
            .await
            .unwrap();
        assert!(!gained);
        let drop = format!("DROP OWNED BY {role}; DROP ROLE {role}");
        admin.execute(AssertSqlSafe(drop)).await.unwrap();
    }
}

#[tokio::test]
async fn an_upgrade_is_told_by_the_command_that_makes_it() {
    for database in databases() {
        database_of(&database.url, 7).await;
        let program = Program::new();
        let file = program.write(
            "posts.ndjson",
            r#"{"id": "x1", "title": "A post", "subreddit": "food", "created_utc": 1750000000}"#,
        );
        let import = [
            "--database",
            &database.url,
            "import",
            "--format",
            "ndjson",
            &file,
        ];
        let first = program.run(&import);
        assert!(
            first.stderr.contains("upgrading the database"),
            "{}",
            first.stderr
        );
        assert!(first.stderr.contains("from=7"), "{}", first.stderr);
        let second = program.run(&import);
        assert!(!second.stderr.contains("upgrading"), "{}", second.stderr);
    }
}

#[tokio::test]
async fn a_database_is_backed_up_before_it_is_upgraded() {
    let database = crate::support::postgres::sqlite();
    database_of(&database.url, 9).await;
    let program = Program::new();
    let copy = program.folder.path().join("copy.db").display().to_string();
    program.ok(&["--database", &database.url, "db", "backup", &copy]);
    let mut connection = sqlx::SqliteConnection::connect(&format!("sqlite:{copy}"))
        .await
        .unwrap();
    let schema: i64 = sqlx::query_scalar("SELECT MAX(version) FROM _sqlx_migrations")
        .fetch_one(&mut connection)
        .await
        .unwrap();
    assert_eq!(schema, 9);
}

#[tokio::test]
async fn the_views_for_people_have_the_text_and_where_it_is_on_both_databases() {
    for database in databases() {
        let scene = crate::purge::Scene::of(&database).await;
        let posts = crate::purge::some(&["a"]);
        scene
            .save(topicmill::domain::SourceKind::Import, &posts)
            .await;
        scene.label().await;
        for view in ["labeled_posts", "uncertain_posts WHERE FALSE OR margin < 2"] {
            let columns = "title, label_topic, selftext, url, permalink, author, source";
            let rows = scene.rows(&format!("SELECT {columns} FROM {view}")).await;
            if view == "labeled_posts" {
                let row = "Title-a climate Body of Title-a null /r/climate/comments/a/Title-a/ someone import";
                assert_eq!(rows, [row], "{}", database.url);
            }
        }
    }
}
