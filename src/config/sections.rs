//! The settings, with one struct per section of `config/topicmill.toml`.

#![expect(missing_docs, reason = "config/topicmill.toml documents each key")]

use std::ops::RangeInclusive;
use std::path::PathBuf;

use serde::Deserialize;

use super::Secret;

/// Number of concurrent engines. Each needs its own core or device, and memory for a model.
pub const WORKERS: RangeInclusive<u16> = 1..=64;

/// All settings.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    pub pipeline: PathBuf,
    pub database: DatabaseSection,
    pub reddit: RedditSection,
    pub arctic_shift: ArcticShiftSection,
    pub collect: CollectSection,
    pub onnxruntime: OnnxRuntimeSection,
    pub openvino: OpenVinoSection,
    pub classify: ClassifySection,
    pub serve: ServeSection,
    pub log: LogSection,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DatabaseSection {
    pub url: Secret,
    pub allow_superuser: bool,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RedditSection {
    pub auth_url: String,
    pub api_url: String,
    pub client_id: String,
    pub client_secret: Secret,
    pub username: String,
    pub password: Secret,
    pub user_agent: String,
    pub requests_per_minute: u32,
    pub wait_budget_secs: u64,
    pub tries: u32,
    pub connect_timeout_secs: u64,
    pub read_timeout_secs: u64,
    pub total_timeout_secs: u64,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ArcticShiftSection {
    pub api_url: String,
    pub requests_per_minute: u32,
    pub wait_budget_secs: u64,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CollectSection {
    pub listing: String,
    pub limit: u32,
    pub concurrency: usize,
    pub overlap_secs: u64,
    pub page_cap: u32,
    pub store_author: bool,
    pub retention_hours: u32,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OnnxRuntimeSection {
    pub library: String,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OpenVinoSection {
    pub library: String,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClassifySection {
    pub model: PathBuf,
    pub device: String,
    pub engine: String,
    pub precision: String,
    pub batch_tokens: String,
    pub mode: String,
    pub lease_secs: u64,
    pub max_attempts: u32,
    pub workers: u16,
    pub threads: usize,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ServeSection {
    pub listen: String,
    pub token: Secret,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LogSection {
    pub format: String,
}
