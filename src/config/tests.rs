//! Precedence of the layers, and the content of error messages.

use super::paths::{DEFAULT_MODEL, sqlite_url_in_folder};
use super::*;
use crate::telemetry::LogFormat;
use topicmill_core::table;

fn env(pairs: &[(&str, &str)]) -> HashMap<String, String> {
    let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
    pairs.iter().map(owned).collect()
}

#[test]
fn every_setting_has_a_comment_line_above_it() {
    let lines: Vec<&str> = DEFAULTS.lines().collect();
    for (i, line) in lines
        .iter()
        .enumerate()
        .filter(|(_, line)| line.contains(" = "))
    {
        assert!(lines[i - 1].starts_with("# "), "no comment above: {line}");
    }
}

#[test]
fn defaults_stay_within_the_rate_limits() {
    let loaded = load(None, HashMap::new(), &[]).unwrap();
    let (reddit, archive) = (&loaded.settings.reddit, &loaded.settings.arctic_shift);
    assert_eq!((reddit.requests_per_minute, reddit.tries), (100, 5));
    assert_eq!(archive.requests_per_minute, 60);
}

#[test]
fn later_layers_override_earlier_ones() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.toml");
    std::fs::write(&path, "[collect]\nlimit = 7\n[log]\nformat = \"json\"\n").unwrap();
    let mut env = env(&[
        ("TOPICMILL__COLLECT__LIMIT", "8"),
        ("DATABASE_URL", "sqlite:a.db"),
        ("OTHER", "x"),
        ("TOPICMILL__REDDIT__CLIENT_SECRET", "00123"),
    ]);
    let loaded = load(Some(&path), env.clone(), &[("collect.limit", "9".into())]).unwrap();
    assert_eq!(loaded.settings.collect.limit, 9);
    // Leading zeros are kept, and the secret is masked.
    assert_eq!(loaded.settings.reddit.client_secret.reveal(), "00123");
    assert!(!format!("{:?}", loaded.settings).contains("00123"));
    assert_eq!(loaded.settings.log.format, LogFormat::Json);
    assert_eq!(*loaded.origin("collect.limit"), Origin::Flag);
    assert_eq!(*loaded.origin("log.format"), Origin::File(path));
    let shared = Origin::Environment("DATABASE_URL".into());
    assert_eq!(*loaded.origin("database.url"), shared);
    let own = "TOPICMILL__DATABASE__URL";
    env.insert(own.into(), "sqlite:b.db".into());
    let loaded = load(None, env, &[]).unwrap();
    let url = &loaded.values["database.url"];
    assert_eq!(url.value, "sqlite:b.db");
    assert_eq!(url.origin, Origin::Environment(own.into()));
}

#[test]
fn paths_are_relative_to_the_folder_of_the_settings_file() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("50% of?it");
    std::fs::create_dir(&folder).unwrap();
    let path = folder.join("t.toml");
    let text = "[database]\nurl = \"sqlite:a.db?mode=ro\"\n[classify]\nmodel = \"m\"\n\
                [onnxruntime]\nlibrary = \"../lib.so\"\n[openvino]\nlibrary = \"../lib.so\"\n";
    std::fs::write(&path, text).unwrap();
    let loaded = load(Some(&path), [], &[]).unwrap();
    let settings = &loaded.settings;
    let encoded = format!("{}/50%25 of%3Fit", dir.path().display());
    let url = format!("sqlite:{encoded}/a.db?mode=ro");
    assert_eq!(settings.database.url.reveal(), url);
    assert_eq!(settings.classify.model, folder.join("m"));
    let library = folder.join("../lib.so");
    assert_eq!(settings.onnxruntime.library, Some(library.clone()));
    assert_eq!(settings.openvino.library, Some(library));
    // Paths in the environment and in flags are relative to the current folder.
    let env = env(&[("TOPICMILL__CLASSIFY__MODEL", "n")]);
    let loaded = load(Some(&path), env, &[("database.url", "sqlite:b.db".into())]).unwrap();
    assert_eq!(loaded.settings.classify.model, Path::new("n"));
    assert_eq!(loaded.settings.database.url.reveal(), "sqlite:b.db");
    for (url, resolved) in [
        ("sqlite:a.db", "sqlite:/f/a.db"),
        ("sqlite://a.db", "sqlite:/f/a.db"),
        ("sqlite:../a.db", "sqlite:/f/../a.db"),
        ("sqlite:/srv/a.db", "sqlite:/srv/a.db"),
        ("sqlite:///srv/a.db", "sqlite:///srv/a.db"),
        ("sqlite::memory:", "sqlite::memory:"),
        ("postgres://h/db", "postgres://h/db"),
        ("", ""),
    ] {
        assert_eq!(sqlite_url_in_folder("/f", url), resolved);
    }
    // The default model is found from anywhere.
    std::fs::write(&path, DEFAULTS).unwrap();
    let loaded = load(Some(&path), [], &[]).unwrap();
    assert_eq!(loaded.settings.classify.model, Path::new(DEFAULT_MODEL));
}

/// Returns the error for a settings file and variables.
fn refusal(file: &str, variables: &[(&str, &str)]) -> String {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.toml");
    std::fs::write(&path, file).unwrap();
    let refused = load(Some(&path), env(variables), &[]).unwrap_err();
    refused.to_string()
}

#[test]
fn errors_name_the_key_and_its_layer_but_no_secret() {
    for (file, variables, expected) in table! {
        "[reddit]\nclient_secrte = \"x\"\n", &[][..], &["`reddit.client_secrte`", "t.toml, line 2;", "client_secret,"][..];
        "\n[databse]\nurl = \"hush\"\n", &[], &["`databse.url`", "t.toml, line 3;"];
        "[database]\nurl_fil = \"hush-hush\"\n", &[],
            &["did you mean `url_file`? [database] has allow_superuser, url, url_file"];
        "[classify]\nworkers = 99999999999999999999\n", &[], &["line 2, column 11"];
        "", &[("TOPICMILL__FOO__BAR", "1")], &["`foo.bar`", "TOPICMILL__FOO__BAR", "arctic_shift, classify"];
        "", &[("TOPICMILL__CLASSIFY__WORKERS", "-1")],
            &["$TOPICMILL__CLASSIFY__WORKERS", "`-1` is not a whole number from 1 to 64"];
        "[reddit]\nclient_secret = \"hush-hush\n", &[], &["t.toml", "line 2"];
        "[collect]\nlimit = 99999999999\n", &[],
            &["setting `collect.limit` in", "t.toml, line 2: `99999999999` is not a whole number from 1 to 1000"];
        "[collect]\ncomments_limit = 0\n", &[], &["line 2: `0` is not a whole number from 1 to"];
        "# A comment\n[collect]\nlimit = 3\nlisting = \"worst\"\n", &[],
            &["setting `collect.listing` in", "t.toml, line 4: `worst` is neither auto nor", "hot, new"];
        "", &[("TOPICMILL__CLASSIFY__MODE", "triple")],
            &["$TOPICMILL__CLASSIFY__MODE: `triple` is not one of single, multi, raw"];
        "", &[("TOPICMILL__LOG__FORMAT", "xml")],
            &["$TOPICMILL__LOG__FORMAT: unknown variant `xml`, expected `text` or `json`"];
        "", &[("TOPICMILL__COLLECT__COMMENT_TEXT", "title")],
            &["$TOPICMILL__COLLECT__COMMENT_TEXT: unknown variant `title`, expected `body` or `title and body`"];
        "[[classify]]\nworkers = 3\n", &[], &["`classify` is a section, written [classify], with batch_tokens,"];
    } {
        let refused = refusal(file, variables);
        for expected in expected {
            assert!(refused.contains(expected), "{expected}: {refused}");
        }
        assert!(!refused.contains("hush"), "{refused}");
    }
    let dir = tempfile::tempdir().unwrap();
    let no_file = load(Some(&dir.path().join("none.toml")), [], &[]);
    assert!(matches!(no_file, Err(ConfigError::NoFile(_))));
    assert!(load(Some(Path::new("/dev/null")), [], &[]).is_ok());
}

/// Writes a file with this content and mode.
fn secret(folder: &Path, name: &str, content: &[u8], mode: u32) -> String {
    use std::os::unix::fs::PermissionsExt;
    let path = folder.join(name);
    std::fs::write(&path, content).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
    path.into_os_string().into_string().unwrap()
}

#[test]
fn secrets_are_read_from_files() {
    let dir = tempfile::tempdir().unwrap();
    let password = secret(dir.path(), "password", b" pass word\r\n", 0o640);
    secret(dir.path(), "url", b"postgres://me:hush@h/db\n", 0o600);
    let path = dir.path().join("t.toml");
    std::fs::write(&path, "[database]\nurl_file = \"url\"\n").unwrap();
    let variables = [
        ("TOPICMILL__REDDIT__PASSWORD_FILE", password.as_str()),
        ("TOPICMILL__SERVE__TOKEN_FILE", ""),
    ];
    let loaded = load(Some(&path), env(&variables), &[]).unwrap();
    let settings = &loaded.settings;
    assert_eq!(settings.reddit.password.reveal(), " pass word");
    assert_eq!(settings.database.url.reveal(), "postgres://me:hush@h/db");
    assert_eq!(settings.serve.token.reveal(), "");
    let origin = loaded.origin("reddit.password").to_string();
    assert_eq!(origin, "$TOPICMILL__REDDIT__PASSWORD_FILE");
    assert_eq!(loaded.warnings, Vec::<String>::new());
    // `TOPICMILL__…` overrides `DATABASE_URL`, whether or not either names a file.
    let shared = secret(dir.path(), "shared", b"sqlite:a.db", 0o600);
    let variables = [
        ("DATABASE_URL_FILE", shared.as_str()),
        ("TOPICMILL__DATABASE__URL", "sqlite:b.db"),
    ];
    for (variables, url) in [
        (&variables[..1], "sqlite:a.db"),
        (&variables, "sqlite:b.db"),
    ] {
        let loaded = load(Some(&path), env(variables), &[]).unwrap();
        assert_eq!(loaded.settings.database.url.reveal(), url);
    }
}

#[test]
fn a_world_readable_secret_file_causes_a_warning() {
    let dir = tempfile::tempdir().unwrap();
    let open = secret(dir.path(), "open", b"hush-hush", 0o644);
    let loaded = load(None, env(&[("TOPICMILL__SERVE__TOKEN_FILE", &open)]), &[]).unwrap();
    let [warning] = loaded.warnings.as_slice() else {
        panic!("{:?}", loaded.warnings);
    };
    assert!(warning.contains(&open) && warning.contains("mode 644") && warning.contains("chmod"));
    assert!(!warning.contains("hush"));
}

#[test]
fn invalid_secret_files_are_rejected_without_showing_their_content() {
    let dir = tempfile::tempdir().unwrap();
    let missing = dir.path().join("missing");
    let folder = dir.path().to_str().unwrap();
    for (file, expected) in table! {
        missing.to_str().unwrap(), "No such file";
        folder, "directory";
        &secret(dir.path(), "empty", b"\n", 0o600), "is empty";
        &secret(dir.path(), "lines", b"hush\nhush\n", 0o600), "more than one line";
        &secret(dir.path(), "bytes", b"hush\xff", 0o600), "not UTF-8 text";
        "/dev/zero", "longer than any secret";
    } {
        let refused = refusal("", &[("TOPICMILL__REDDIT__CLIENT_SECRET_FILE", file)]);
        for expected in [expected, file, "$TOPICMILL__REDDIT__CLIENT_SECRET_FILE"] {
            assert!(refused.contains(expected), "{expected}: {refused}");
        }
        assert!(!refused.contains("hush"), "{refused}");
    }
    let both = [
        ("TOPICMILL__SERVE__TOKEN_FILE", "f"),
        ("TOPICMILL__SERVE__TOKEN", "hush-hush"),
    ];
    let refused = refusal("", &both);
    assert!(
        refused.contains("remove one of the two") && !refused.contains("hush"),
        "{refused}"
    );
    // Only secrets can be read from files.
    let refused = refusal("[reddit]\nuser_agent_file = \"f\"\n", &[]);
    assert!(
        refused.contains("unknown setting `reddit.user_agent_file`"),
        "{refused}"
    );
}
