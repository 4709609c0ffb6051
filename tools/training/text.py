"""The text of a post as the program reads it, according to the rule in crates/core/src/reddit_text.toml."""

import html
import re
import tomllib
from pathlib import Path

FILE = Path(__file__).resolve().parents[2] / "crates/core/src/reddit_text.toml"
RULE = tomllib.loads(FILE.read_text())
PLACEHOLDER, INVISIBLE = re.compile(RULE["placeholder"]), re.compile(RULE["invisible"])
MARKUP = [
    (re.compile(pattern.replace("MEDIA", RULE["media"])), re.sub(r"\$(\d)", r"\\\1", left))
    for _, pattern, left in RULE["markup"]
]


def reddit_text(text: str) -> str:
    """Returns a title or a body as readers of Reddit see it."""
    for pattern, left in MARKUP:
        text = pattern.sub(left, text)
    # The program decodes only references that end with a semicolon.
    text = re.sub(r"&(?:#\d+|#[xX][\da-fA-F]+|\w+);", lambda found: html.unescape(found[0]), text)
    return re.sub(r"\s*\n\s*\n\s*", "\n\n", INVISIBLE.sub(r"\1", text)).strip()


def post_text(title: str, body: str) -> str:
    """Returns title and body with a blank line between them, without placeholders of removed texts."""
    parts = [reddit_text(part) for part in (title, body)]
    return "\n\n".join(part for part in parts if part and not PLACEHOLDER.search(part))
