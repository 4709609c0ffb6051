"""The labels of a pipeline file, and each label's texts, which an embedding model compares with a post.

Input is a pipeline file. Output is slugs, words and texts, exactly as topicmill makes them in crates/core/src/labels/slug.rs
and crates/core/src/labels/hypothesis.rs. If they differed, topicmill would not find the learned label vectors.
"""

import string
import tomllib
import unicodedata
from dataclasses import dataclass
from pathlib import Path

from models import InputError

TEMPLATE = "This text is about {}."
SIGNS = {"&": "and", "+": "plus", "#": "sharp", "%": "percent"}
APOSTROPHES = "'’"
PUNCTUATION = set(string.punctuation) | set("\xa1\xab\xb7\xbb\xbf")
RANGES = ((0x2000, 0x200B), (0x2010, 0x206F), (0x3000, 0x303F))  # general punctuation, Chinese and Japanese


@dataclass(frozen=True)
class Label:
    """A label: its slug, its words, and the texts for its vector."""

    slug: str
    words: str
    texts: list[str]


def read_labels(path: Path) -> list[Label]:
    """Returns the labels of a pipeline file in order. Raises `InputError`."""
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8-sig"))
        template = content.get("hypothesis_template", TEMPLATE)
        topics = content.get("topic") or [{"label": label} for label in content["labels"]]
        return [label_of(topic, template) for topic in topics]
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as problem:
        raise InputError(f"`{path}` cannot be read: {problem}; see `topicmill labels validate`") from None


def label_of(topic: dict, template: str) -> Label:
    """Parses one topic of the file; its descriptions are a string or a list of strings."""
    words, said = topic["label"], topic.get("descriptions", [])
    descriptions = [said] if isinstance(said, str) else said
    texts = [template.replace("{}", words, 1), *(text.strip() for text in descriptions)]
    return Label(topic.get("slug") or slug_of(words), words, [texts[0], *filter(None, texts[1:])])


def slug_of(words: str) -> str:
    """Returns the slug made from the words of a label."""
    parts = [""]
    for letter in words:
        if letter in SIGNS:
            parts += [SIGNS[letter], ""]
        elif separates(letter):
            parts.append("")
        elif letter not in APOSTROPHES:
            parts[-1] += letter.lower()
    return "-".join(filter(None, parts))


def separates(letter: str) -> bool:
    """True for white space and punctuation, except apostrophes."""
    if letter in APOSTROPHES:
        return False
    if letter in PUNCTUATION or any(first <= ord(letter) <= last for first, last in RANGES):
        return True
    return letter.isspace() or unicodedata.category(letter) == "Cc"
