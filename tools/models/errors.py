"""What can go wrong, as one line for a person. The command turns each into its exit code."""


class InputError(Exception):
    """The folder of the Hugging Face model, or what was asked of it, cannot be used: exit code 2."""


class GraphError(Exception):
    """A graph was made and does not agree with torch, or is not what it should be: exit code 1."""
