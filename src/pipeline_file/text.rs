//! The text of a pipeline file.

use std::io::ErrorKind;
use std::path::Path;

use super::PipelineError;
use crate::config::written::{self, MOST_BYTES, NoText};

/// Reads the text of a pipeline file.
///
/// # Errors
/// [`PipelineError::Read`], [`PipelineError::Folder`], [`PipelineError::Large`], [`PipelineError::Encoding`] or
/// [`PipelineError::Blank`].
pub fn read_text(path: &Path) -> Result<String, PipelineError> {
    let text = written::read(path).map_err(|error| {
        let path = path.to_owned();
        match error {
            NoText::Read(source) if source.kind() == ErrorKind::IsADirectory => {
                PipelineError::Folder(path)
            }
            NoText::Read(source) => PipelineError::Read { path, source },
            NoText::Large => PipelineError::Large {
                path,
                most_mib: MOST_BYTES >> 20,
            },
            NoText::Encoding(line) => PipelineError::Encoding { path, line },
        }
    })?;
    if text.trim().is_empty() {
        return Err(PipelineError::Blank(path.to_owned()));
    }
    Ok(text)
}
