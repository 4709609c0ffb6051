"""Model folders: graphs built for speed from Hugging Face classifiers, verified against torch, and their manifest."""

# The libraries read these environment variables on import: no network, no progress output.
QUIET = {
    "HF_HUB_OFFLINE": "1",
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "TRANSFORMERS_VERBOSITY": "critical",
}


class InputError(Exception):
    """The Hugging Face model folder or a requested option is unusable: exit code 2."""


class GraphError(Exception):
    """A graph disagrees with torch or has the wrong form: exit code 1."""
