//! The settings, with one struct per section of `config/topicmill.toml`.

#![expect(missing_docs, reason = "config/topicmill.toml documents each key")]

use std::fmt::Display;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::str::FromStr;

use serde::de::{Error, IntoDeserializer};
use serde::{Deserialize, Deserializer};

use super::Secret;
use crate::telemetry::LogFormat;
use topicmill_core::{Listing, Mode, SourceKind};
use topicmill_score::device::devices;
use topicmill_score::{Device, EngineName};

/// All settings.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    #[serde(deserialize_with = "empty_as_none")]
    pub pipeline: Option<PathBuf>,
    pub database: DatabaseSection,
    pub reddit: RedditSection,
    pub arctic_shift: ArcticShiftSection,
    pub collect: CollectSection,
    pub retention: RetentionSection,
    pub onnxruntime: LibrarySection,
    pub openvino: LibrarySection,
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
    pub overlap_hours: u32,
    pub requests_per_minute: u32,
    pub wait_budget_secs: u64,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CollectSection {
    /// `None` for a source that depends on the credentials.
    #[serde(deserialize_with = "source_or_auto")]
    pub source: Option<SourceKind>,
    /// `None` for a listing that depends on what is stored.
    #[serde(deserialize_with = "auto_as_none")]
    pub listing: Option<Listing>,
    pub limit: u32,
    pub comments_limit: u32,
    #[serde(deserialize_with = "variant_name")]
    pub comment_text: CommentText,
    pub concurrency: usize,
    pub overlap_secs: u64,
    pub page_cap: u32,
    pub store_author: bool,
}

/// The text of a comment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub enum CommentText {
    #[serde(rename = "body")]
    Body,
    #[serde(rename = "title and body")]
    TitleAndBody,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RetentionSection {
    pub hours: u32,
    pub keep_vectors: bool,
    pub imports: bool,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LibrarySection {
    #[serde(deserialize_with = "empty_as_none")]
    pub library: Option<PathBuf>,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClassifySection {
    pub model: PathBuf,
    #[serde(rename = "device", deserialize_with = "device_list")]
    pub devices: Vec<Device>,
    #[serde(deserialize_with = "variant_name")]
    pub engine: EngineName,
    #[serde(deserialize_with = "auto_as_none")]
    pub precision: Option<String>,
    #[serde(deserialize_with = "auto_as_none")]
    pub batch_tokens: Option<NonZeroUsize>,
    #[serde(deserialize_with = "empty_as_none")]
    pub mode: Option<Mode>,
    pub lease_secs: u64,
    pub max_attempts: u32,
    pub workers: u16,
    pub threads: u16,
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
    #[serde(deserialize_with = "variant_name")]
    pub format: LogFormat,
}

/// Reads the name of a variant. The error lists the variants; that of the `config` crate would not.
fn variant_name<'de, D: Deserializer<'de>, T: Deserialize<'de>>(from: D) -> Result<T, D::Error> {
    T::deserialize(String::deserialize(from)?.into_deserializer())
}

/// Reads a value; an empty one means that it is not set.
fn empty_as_none<'de, D: Deserializer<'de>, T>(from: D) -> Result<Option<T>, D::Error>
where
    T: FromStr<Err: Display>,
{
    match String::deserialize(from)?.as_str() {
        "" => Ok(None),
        text => text.parse().map(Some).map_err(Error::custom),
    }
}

/// Reads a value; `auto` means that it is not set.
fn auto_as_none<'de, D: Deserializer<'de>, T>(from: D) -> Result<Option<T>, D::Error>
where
    T: FromStr<Err: Display>,
{
    let text = String::deserialize(from)?;
    if text == "auto" {
        return Ok(None);
    }
    let wrong = |error| Error::custom(format!("`{text}` is neither auto nor valid: {error}"));
    text.parse().map(Some).map_err(wrong)
}

fn source_or_auto<'de, D: Deserializer<'de>>(from: D) -> Result<Option<SourceKind>, D::Error> {
    match String::deserialize(from)?.as_str() {
        "auto" => Ok(None),
        name => SourceKind::parse_collectable(name)
            .map(Some)
            .map_err(|error| Error::custom(format!("{error}, auto"))),
    }
}

fn device_list<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<Device>, D::Error> {
    devices(&String::deserialize(from)?).map_err(Error::custom)
}
