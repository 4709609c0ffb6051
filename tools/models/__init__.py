"""Model folders: graphs built for speed from Hugging Face classifiers, compared with torch, and their manifest."""

# Read by the libraries from the environment when they are imported: no network, no chatter.
QUIET = {
    "HF_HUB_OFFLINE": "1",
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "TRANSFORMERS_VERBOSITY": "critical",
}


class InputError(Exception):
    """The folder of the Hugging Face model, or what was asked of it, cannot be used: exit code 2."""


class GraphError(Exception):
    """A graph was made and does not agree with torch, or is not what it should be: exit code 1."""
