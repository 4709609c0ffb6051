#!/usr/bin/env python3
"""Writes the parity fixtures in tests/it/fixtures: tiny models, and the scores of transformers' pipelines for them."""

import os
import sys
from pathlib import Path

FIXTURES = Path(__file__).resolve().parent.parent / "tests" / "it" / "fixtures"

if __name__ == "__main__":
    # The libraries read these variables on import.
    os.environ |= {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false", "TRANSFORMERS_VERBOSITY": "error"}
    from parity.write import write_fixtures

    sys.exit(write_fixtures(FIXTURES))
