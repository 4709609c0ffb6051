//! PostgreSQL's `pg_dump`, `pg_restore` and `psql`, run so that nothing is left half done.
//!
//! The dump goes through a pipe to a file of ours, and a restore through a pipe to `psql`, as one transaction whose
//! `COMMIT` is sent after `pg_restore` has ended well. So whichever process dies, the server goes back to what it had.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs::OpenOptions;
use std::io::{self, Read, Write};
use std::path::Path;
use std::process::{Child, ChildStderr, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::{JoinHandle, spawn};

use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;

use super::tools::{Tool, all};
use super::{KeepError, at};
use crate::store::ServerState;

/// Lines of a program's complaint that are shown.
const SAID: usize = 3;
/// How long a lock that is in the way is waited for.
const PATIENCE: &str = "5s";
/// What `pg_restore` says of a dump that a later `pg_dump` made.
const TOO_NEW: &str = "unsupported version";
/// What a server says when somebody's own views show what is to go.
const DEPENDED_ON: &str = "depend on them";
/// What a server says when a lock does not come.
const LOCKED: &str = "lock timeout";

type Variables = [(&'static str, String)];

/// Copies the schema of topicmill's tables to a file that is there, empty. It fails once `stop` is cancelled. Runs on a thread
/// that may wait, of a runtime.
pub(super) fn dump(
    tool: &Tool,
    variables: &Variables,
    schema: &str,
    to: &Path,
    stop: CancellationToken,
) -> Result<(), KeepError> {
    const WHAT: &str = "copy the database to";
    let mut file = OpenOptions::new()
        .write(true)
        .open(to)
        .map_err(at(WHAT, to))?;
    let schema = format!("--schema={}", quoted(schema));
    let mut child = program(&tool.path, variables)
        .args([
            "--format=custom",
            "--no-password",
            "--lock-wait-timeout=60000",
        ])
        .arg(schema)
        .stdout(Stdio::piped())
        .spawn()
        .map_err(at("run", &tool.path))?;
    let heard = listen(&mut child);
    let mut dumped = child.stdout.take().expect("it is piped");
    // It may say nothing for long, while it waits for a lock: so it is ended by somebody else, and that ends the copying.
    let child = Arc::new(Mutex::new(Some(child)));
    let ending = Handle::current().spawn(kill_when(stop, Arc::clone(&child)));
    let copied = io::copy(&mut dumped, &mut file);
    drop(dumped);
    ending.abort();
    let child = child.lock().expect("no holder of this lock panics").take();
    let child = child.expect("only this takes it");
    let ended = end(child, heard, copied.is_err());
    copied.map_err(at(WHAT, to))?;
    match ended {
        (true, _) => Ok(()),
        (false, said) => Err(KeepError::Tool {
            what: "copy the database",
            program: tool.name,
            said,
        }),
    }
}

/// Ends a program once `stop` is cancelled, if nobody waits for its end yet.
async fn kill_when(stop: CancellationToken, child: Arc<Mutex<Option<Child>>>) {
    stop.cancelled().await;
    if let Some(child) = &mut *child.lock().expect("no holder of this lock panics") {
        // One that has ended already is as well.
        let _ = child.kill();
    }
}

/// A dump that can be read, and the program that reads it.
#[derive(Debug)]
pub(super) struct Readable {
    tool: Tool,
    /// The tables and views that it has.
    relations: BTreeSet<String>,
}

/// Looks what a dump holds, by the first program that can read it.
pub(super) fn readable(file: &Path, state: &ServerState) -> Result<Readable, KeepError> {
    let mut said = String::new();
    for tool in all("pg_restore", state.version)? {
        let mut child = Command::new(&tool.path)
            .arg("--list")
            .arg(file)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(at("run", &tool.path))?;
        let heard = listen(&mut child);
        let mut list = String::new();
        let mut stdout = child.stdout.take().expect("it is piped");
        stdout
            .read_to_string(&mut list)
            .map_err(at("read what is in", file))?;
        match end(child, heard, false) {
            (true, _) => return known(file, state, tool, &list),
            (false, why) => said = why,
        }
        if !said.contains(TOO_NEW) {
            break;
        }
    }
    Err(KeepError::NoBackup {
        path: file.to_owned(),
        why: format!("pg_restore cannot read it ({said}); take another backup"),
    })
}

/// Checks that a dump is one of topicmill's tables in the schema that they are to be in.
fn known(file: &Path, state: &ServerState, tool: Tool, list: &str) -> Result<Readable, KeepError> {
    let refused = |why: String| {
        let path = file.to_owned();
        Err(KeepError::NoBackup { path, why })
    };
    let mut relations = BTreeSet::new();
    let mut schemas = BTreeSet::new();
    for line in list.lines().filter(|line| !line.starts_with(';')) {
        // `215; 1259 16390 TABLE public posts owner`, and `TABLE DATA public posts owner`, which has no `DATA` schema.
        let words: Vec<&str> = line.split_whitespace().collect();
        if let [_, _, _, "TABLE" | "VIEW", schema, name, ..] = words[..]
            && schema != "DATA"
        {
            relations.insert(name.to_owned());
            schemas.insert(schema.to_owned());
        }
    }
    if !["posts", "runs", "_sqlx_migrations"]
        .iter()
        .all(|name| relations.contains(*name))
    {
        return refused("it is a dump, but not one of topicmill's tables; name the file that `topicmill db backup` wrote".into());
    }
    if !schemas.contains(&state.schema) {
        let schemas: Vec<String> = schemas.into_iter().collect();
        return refused(format!(
            "its tables are in the schema `{}`, and those of this database in `{}`; restore it with a user whose \
             search_path begins with the former",
            schemas.join(", "),
            state.schema
        ));
    }
    Ok(Readable { tool, relations })
}

/// Puts what a dump holds in the place of what a database holds, completely or not at all.
pub(super) fn put(
    readable: &Readable,
    file: &Path,
    variables: &Variables,
    state: &ServerState,
    ours: &[String],
    url: &str,
) -> Result<(), KeepError> {
    const WHAT: &str = "restore the database";
    let tool = &readable.tool;
    let psql = tool.beside("psql").ok_or(KeepError::NoTool {
        program: "psql",
        server: state.version,
        found: String::new(),
    })?;
    let mut reader = program(&tool.path, &[])
        .args([
            "--file=-",
            "--no-owner",
            "--no-privileges",
            "--exit-on-error",
        ])
        .arg(format!("--schema={}", state.schema))
        .arg(file)
        .stdout(Stdio::piped())
        .spawn()
        .map_err(at("run", &tool.path))?;
    let read_heard = listen(&mut reader);
    let mut writer = program(&psql, variables)
        .args([
            "--no-psqlrc",
            "--quiet",
            "--no-password",
            "--set=ON_ERROR_STOP=1",
            "--set=VERBOSITY=terse",
        ])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .map_err(at("run", &psql))?;
    let write_heard = listen(&mut writer);
    let mut script = writer.stdin.take().expect("it is piped");
    let mut dumped = reader.stdout.take().expect("it is piped");
    let sent = script
        .write_all(before(state, ours, &readable.relations).as_bytes())
        .and_then(|()| io::copy(&mut dumped, &mut script).map(drop));
    drop(dumped);
    let (read, read_said) = end(reader, read_heard, sent.is_err());
    let whole = sent.is_ok();
    // Without these words, all of it is taken back.
    let sent = match sent {
        Ok(()) if read => script.write_all(after(state).as_bytes()),
        sent => sent,
    };
    drop(script);
    let (wrote, write_said) = end(writer, write_heard, false);
    if whole && !read {
        return Err(KeepError::NoBackup {
            path: file.to_owned(),
            why: format!("pg_restore cannot read all of it ({read_said}); take another backup"),
        });
    }
    if !wrote && write_said.contains(LOCKED) {
        return Err(KeepError::InUse {
            url: url.to_owned(),
            by: "another program holds a lock on its tables".into(),
        });
    }
    if !wrote {
        let hint = if write_said.contains(DEPENDED_ON) {
            "; drop your own views on these tables, or restore into an empty database"
        } else {
            ""
        };
        return Err(KeepError::Tool {
            what: WHAT,
            program: "psql",
            said: write_said + hint,
        });
    }
    sent.map_err(at("restore the database from", file))
}

/// What stands before the dump: what it replaces goes, but for what was purged, which is noted.
fn before(state: &ServerState, ours: &[String], dumped: &BTreeSet<String>) -> String {
    let schema = quoted(&state.schema);
    let goes = |name: &&String| ours.contains(name) || dumped.contains(*name);
    let names = |of: &[String]| {
        let names: Vec<String> = of
            .iter()
            .filter(goes)
            .map(|name| format!("{schema}.{}", quoted(name)))
            .collect();
        names.join(", ")
    };
    let (tables, views) = (names(&state.tables), names(&state.views));
    let mut sql = format!("BEGIN;\nSET LOCAL lock_timeout = '{PATIENCE}';\n");
    if !tables.is_empty() {
        // At once, so that no purge adds a tombstone behind the ones that are read.
        writeln!(sql, "LOCK TABLE {tables} IN ACCESS EXCLUSIVE MODE;").expect("a String takes all");
    }
    sql += "CREATE TEMPORARY TABLE topicmill_purged (fullname TEXT PRIMARY KEY, reason TEXT, purged_at TIMESTAMPTZ) \
            ON COMMIT DROP;\n";
    if state.tables.iter().any(|table| table == "tombstones") {
        writeln!(
            sql,
            "INSERT INTO topicmill_purged SELECT fullname, reason, purged_at FROM {schema}.tombstones;"
        )
        .expect("a String takes all");
    }
    // Triggers go with their tables, and the functions that they call after them.
    let functions = state.functions.join(", ");
    for (kind, names) in [("VIEW", views), ("TABLE", tables), ("FUNCTION", functions)] {
        if !names.is_empty() {
            writeln!(sql, "DROP {kind} {names};").expect("a String takes all");
        }
    }
    sql
}

/// What stands behind it: what was purged goes again, others may do what they might do, and all of it counts.
fn after(state: &ServerState) -> String {
    let schema = quoted(&state.schema);
    let known = state.known;
    let grants: String = state
        .grants
        .iter()
        .map(|grant| {
            let grant = grant.replace('\'', "''");
            format!(
                "  BEGIN EXECUTE '{grant}'; EXCEPTION WHEN undefined_table OR undefined_column OR undefined_object \
                 THEN NULL; END;\n"
            )
        })
        .collect();
    format!(
        "\nSET LOCAL search_path TO {schema};\n\
         DO $topicmill$\n\
         DECLARE its_version BIGINT;\n\
         BEGIN\n\
         \x20 SELECT MAX(version) INTO its_version FROM _sqlx_migrations WHERE success;\n\
         \x20 IF its_version > {known} THEN\n\
         \x20   RAISE EXCEPTION 'the backup has schema version %, this program knows {known}: update topicmill', its_version;\n\
         \x20 END IF;\n\
         \x20 IF to_regclass('tombstones') IS NOT NULL THEN\n\
         \x20   INSERT INTO tombstones (fullname, reason, purged_at)\n\
         \x20     SELECT fullname, reason, purged_at FROM pg_temp.topicmill_purged ON CONFLICT (fullname) DO NOTHING;\n\
         \x20   DELETE FROM posts WHERE fullname IN (SELECT fullname FROM pg_temp.topicmill_purged);\n\
         \x20   IF FOUND THEN\n\
         \x20     DELETE FROM pair_logits l WHERE NOT EXISTS (SELECT 1 FROM posts p WHERE p.text_hash = l.text_hash);\n\
         \x20     IF to_regclass('text_vectors') IS NOT NULL THEN\n\
         \x20       DELETE FROM text_vectors v WHERE NOT EXISTS (SELECT 1 FROM posts p\n\
         \x20         WHERE p.text_hash = v.text_hash AND p.text_purged_at IS NULL);\n\
         \x20     END IF;\n\
         \x20     INSERT INTO meta (key, value) VALUES ('rewrite_due', gen_random_uuid()::text)\n\
         \x20       ON CONFLICT (key) DO UPDATE SET value = excluded.value;\n\
         \x20   END IF;\n\
         \x20 END IF;\n\
         {grants}\
         END\n\
         $topicmill$;\n\
         COMMIT;\n"
    )
}

fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// A program that is asked nothing and told nothing but by these variables.
fn program(path: &Path, variables: &Variables) -> Command {
    let mut command = Command::new(path);
    command
        .envs(
            variables
                .iter()
                .map(|(name, value)| (*name, value.as_str())),
        )
        .env("LC_ALL", "C")
        .stdin(Stdio::null())
        .stderr(Stdio::piped());
    command
}

/// Hears what a program says while it works, so that it never waits for us to.
fn listen(child: &mut Child) -> JoinHandle<String> {
    let stderr: Option<ChildStderr> = child.stderr.take();
    spawn(move || {
        let mut said = Vec::new();
        if let Some(mut stderr) = stderr {
            // Whatever was heard until then is shown.
            let _ = stderr.read_to_end(&mut said);
        }
        let said = String::from_utf8_lossy(&said).into_owned();
        let lines: Vec<&str> = said
            .lines()
            .map(str::trim)
            .filter(|line| !line.is_empty())
            .collect();
        lines[..lines.len().min(SAID)].join("; ")
    })
}

/// Waits until a program has ended, or ends it; whether it ended well, and what it said.
fn end(mut child: Child, heard: JoinHandle<String>, kill: bool) -> (bool, String) {
    if kill {
        // One that has ended already is as well.
        let _ = child.kill();
    }
    let well = child.wait().is_ok_and(|status| status.success());
    let said = heard.join().unwrap_or_default();
    let said = if said.is_empty() {
        "it says nothing more".to_owned()
    } else {
        said
    };
    (well, said)
}
