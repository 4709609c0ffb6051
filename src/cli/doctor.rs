//! `topicmill doctor`: what is here, what is missing, and what to do about it.

use clap::Args;
use serde_json::Value;

use super::bottleneck;
use super::output::{self, OutputFormat};
use super::setup::{ModelFlags, PipelineFlags, Setup, word};
use super::{CliError, Exit};
use crate::domain::SourceKind;
use crate::source::reddit::{Credentials, Reddit};
use crate::store::{Access, Store, StoreError, Table};
use topicmill_score::engine::EngineName;
use topicmill_score::onnx::{FoundBy, OnnxError, load_runtime};
use topicmill_score::openvino::load_openvino;

/// What `doctor --help` adds.
const CODES: &str = "\
Examples:\n\
\x20 topicmill doctor --source arctic-shift\n\
\x20 topicmill doctor --bottleneck

The exit code is 0 if everything is ready. Otherwise it is the code of the first command that would fail: 5 for ONNX \
Runtime and the model; 4 for a database that is damaged, of another version or out of reach; 3 for credentials that are \
missing or refused; 75 if Reddit does not answer. A database that does not exist yet is no fault: collect and import \
create it.";

/// Flags of `doctor`.
#[derive(Debug, Args)]
#[command(after_help = CODES)]
pub struct Doctor {
    /// Skip the request that asks Reddit whether the credentials are good
    #[arg(long)]
    offline: bool,
    /// Check what this source needs; arctic-shift, sample and import need no credentials
    #[arg(long, value_name = "SOURCE", default_value = "reddit")]
    source: String,
    /// Show instead what limited the latest run of `classify`, and what to change
    #[arg(long, conflicts_with = "offline")]
    bottleneck: bool,
    /// Show the run with this id; `topicmill status` lists the ids
    #[arg(long, value_name = "ID", requires = "bottleneck")]
    run: Option<i64>,
    /// Print in this format; with --bottleneck, json has everything
    #[arg(long, value_enum, default_value_t)]
    format: OutputFormat,
}

/// What came of one check.
struct Finding {
    what: &'static str,
    state: State,
    detail: String,
}

enum State {
    Good,
    /// It is not there, and what needs it ends with this; with nothing where that makes it.
    Missing(Option<Exit>),
    /// It is there, and what needs it ends with this.
    Bad(Exit),
}

impl Doctor {
    pub async fn run(self, setup: &Setup) -> Result<Exit, CliError> {
        if self.bottleneck {
            return bottleneck::run(setup, self.run, self.format).await;
        }
        let mut findings = vec![
            library(setup),
            model(setup),
            pipeline(setup),
            database(setup).await,
        ];
        // Above the model, which it may compute.
        if let Some(openvino) = openvino(setup) {
            findings.insert(1, openvino);
        }
        if word::<SourceKind>("--source", &self.source)?
            .about()
            .needs_key
        {
            findings.push(credentials(setup, self.offline).await);
        }
        let rows = findings
            .iter()
            .map(
                |Finding {
                     what,
                     state,
                     detail,
                 }| {
                    let state = match state {
                        State::Good => "ok",
                        State::Missing(_) => "missing",
                        State::Bad(_) => "wrong",
                    };
                    vec![
                        Value::from(*what),
                        Value::from(state),
                        Value::from(detail.as_str()),
                    ]
                },
            )
            .collect();
        let columns = ["check", "state", "detail"].map(String::from).to_vec();
        output::print_reading(&Table { columns, rows }, self.format)?;
        let first_bad = findings.iter().find_map(|finding| match finding.state {
            State::Bad(exit) => Some(exit),
            State::Missing(exit) => exit,
            State::Good => None,
        });
        Ok(first_bad.unwrap_or(Exit::Done))
    }
}

/// A good finding, or the error with its exit code.
fn finding(what: &'static str, found: Result<String, CliError>) -> Finding {
    match found {
        Ok(detail) => Finding {
            what,
            state: State::Good,
            detail,
        },
        Err(error) => Finding {
            what,
            state: State::Bad(error.exit()),
            detail: error.to_string(),
        },
    }
}

fn library(setup: &Setup) -> Finding {
    let found = load_runtime(setup.library().as_deref())
        .map_err(CliError::from)
        .map(|runtime| {
            let cuda = if runtime.knows_cuda() {
                "with CUDA"
            } else {
                "CPU only"
            };
            let (library, by) = (
                runtime.library().display(),
                said_by(runtime.found_by(), "onnxruntime.library"),
            );
            format!("{library} ({cuda}; from {by})")
        });
    finding("ONNX Runtime", found)
}

/// The second engine, if it is here or the settings ask for it.
fn openvino(setup: &Setup) -> Option<Finding> {
    let set = &setup.settings().classify;
    let wanted = set.engine == EngineName::OpenVino.as_str() || set.precision == "bf16";
    let found = load_openvino(setup.openvino().as_deref());
    if !wanted && matches!(found, Err(OnnxError::NotFound { .. })) {
        return None;
    }
    let found = found.map_err(CliError::from).map(|runtime| {
        let bf16 = if runtime.has_fast_bf16() {
            "with bf16"
        } else if runtime.has_bf16() {
            "bf16 without AMX in this CPU"
        } else {
            "no bf16 in this CPU"
        };
        let (library, by) = (runtime.library().display(), runtime.found_by());
        let by = said_by(by, "openvino.library");
        format!("{library} ({}, {bf16}; from {by})", runtime.version())
    });
    Some(finding("OpenVINO", found))
}

/// Who named the library, by the name of the setting.
fn said_by(by: FoundBy, setting: &str) -> String {
    match by {
        FoundBy::Caller => setting.to_owned(),
        FoundBy::Variable => "ORT_DYLIB_PATH".to_owned(),
        by => by.to_string(),
    }
}

fn model(setup: &Setup) -> Finding {
    // Only a session tells whether the graph is whole.
    let flags = ModelFlags::default();
    let found = setup
        .model_choice(&flags)
        .and_then(|choice| Ok(choice.open_one(choice.devices[0])?));
    finding(
        "model",
        found.map(|engine| {
            let (folder, chosen) = (engine.labeler.folder(), &engine.chosen);
            format!(
                "{}: {}, graph {} in {}, {} tokens, on {} ({})",
                folder.dir.display(),
                folder.kind.as_str(),
                folder.graph.file_name().unwrap_or_default().display(),
                folder.precision,
                folder.max_tokens,
                chosen.device,
                chosen.reason
            )
        }),
    )
}

fn pipeline(setup: &Setup) -> Finding {
    let flags = PipelineFlags { pipeline: None };
    let found = setup.pipeline(&flags).map(|pipeline| {
        let file = setup.pipeline_path(&flags).map_or_else(
            || "built in".to_owned(),
            |path| {
                let origin = &setup.loaded.values["pipeline"].1;
                format!("{}, as set in {origin}", path.display())
            },
        );
        let (name, labels) = (&pipeline.name, pipeline.label_set.labels.len());
        let read = pipeline.topics.iter().filter(|t| !t.subreddits.is_empty());
        let read = read.count();
        format!("{name} ({file}): {labels} labels, {read} topics with subreddits")
    });
    finding("pipeline", found)
}

async fn database(setup: &Setup) -> Finding {
    let url = setup.settings().database.url.reveal();
    match Store::open(url, Access::ReadOnly).await {
        // SQLite says the same of a file that is missing and of one that it may not open.
        Err(error @ StoreError::Open { .. }) if is_missing_file(url) => Finding {
            what: "database",
            state: State::Missing(None),
            detail: format!("{error} (collect and import make it, too)"),
        },
        Err(error) => finding("database", Err(error.into())),
        Ok(store) => {
            let info = store.info().await.map_err(CliError::from);
            finding(
                "database",
                info.map(|info| {
                    let posts = info
                        .rows
                        .iter()
                        .find(|(table, _)| table == "posts")
                        .map_or(0, |(_, n)| *n);
                    format!(
                        "{} ({}), schema version {}, {posts} posts",
                        info.url, info.server, info.schema
                    )
                }),
            )
        }
    }
}

fn is_missing_file(url: &str) -> bool {
    url.strip_prefix("sqlite:").is_some_and(|path| {
        let path = path.strip_prefix("//").unwrap_or(path);
        let path = path.split_once('?').map_or(path, |(path, _)| path);
        !std::path::Path::new(path).exists()
    })
}

async fn credentials(setup: &Setup, offline: bool) -> Finding {
    const WHAT: &str = "Reddit credentials";
    if setup.settings().reddit.client_id.is_empty() {
        let detail = "set client_id, client_secret and user_agent of [reddit], see the README; \
                      `collect --source arctic-shift` needs none";
        // What `collect` would end with.
        return Finding {
            what: WHAT,
            state: State::Missing(Some(Exit::Policy)),
            detail: detail.into(),
        };
    }
    let reddit = match setup.reddit() {
        Ok(reddit) => reddit,
        Err(error) => return finding(WHAT, Err(error)),
    };
    if offline {
        return Finding {
            what: WHAT,
            state: State::Good,
            detail: "set; not tried, as asked".into(),
        };
    }
    let answer = ask(setup, &reddit).await;
    finding(WHAT, answer.map(|credentials| told(&credentials, setup)))
}

/// Asks as `collect` would: a token, then the first subreddit of the topics that are built in.
async fn ask(setup: &Setup, reddit: &Reddit) -> Result<Credentials, CliError> {
    let pipeline = setup.built_in_pipeline()?;
    let subreddit = &pipeline.topics[0].subreddits[0];
    Ok(reddit.check_credentials(subreddit).await?)
}

fn told(credentials: &Credentials, setup: &Setup) -> String {
    let who = if credentials.account {
        "the account of reddit.username"
    } else {
        "the application alone"
    };
    let quota = match credentials.quota {
        None => "the API tells no quota".to_owned(),
        Some(quota) => {
            let until = quota.resets_at.as_datetime() - setup.clock.now();
            format!(
                "quota {:.0} of {:.0} left for the next {} s",
                quota.remaining,
                quota.remaining + quota.used,
                until.num_seconds().max(0)
            )
        }
    };
    format!(
        "accepted for {who}, scope `{}`, token until {}; {quota}",
        credentials.scope,
        credentials
            .ends_at
            .as_datetime()
            .format("%Y-%m-%d %H:%M UTC")
    )
}
