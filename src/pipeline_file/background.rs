//! The background that a pipeline file names: topics that are none of its labels.

use std::path::Path;

use topicmill_score::Background;

use super::text::read_text;
use super::{PipelineError, REDDIT};

/// What a pipeline file says that wants no background.
const NONE: &str = "none";

/// The built-in background, none, or one that is read from a file beside the pipeline file.
///
/// # Errors
/// What is wrong, and what may stand there instead.
pub(super) fn read(named: &str, folder: &Path) -> Result<Option<Background>, String> {
    if named == NONE {
        return Ok(None);
    }
    let text = if named == REDDIT.0 {
        REDDIT.1.to_owned()
    } else {
        let advice =
            "say \"reddit\", \"none\", or the path of a file like pipelines/background/reddit.toml";
        read_text(&folder.join(named)).map_err(|error| match error {
            PipelineError::Read { source, .. } => format!("{source}; {advice}"),
            PipelineError::Folder(_) => format!("it is a folder; {advice}"),
            PipelineError::Encoding { line, .. } => format!("line {line} is no UTF-8"),
            PipelineError::Blank(_) => format!("it is empty; {advice}"),
            error => error.to_string(),
        })?
    };
    Background::parse(&text)
        .map(Some)
        .map_err(|error| error.to_string())
}
