"""A smaller vocabulary: fewer tokens, and so a smaller folder. Words without a token of their own are read in pieces.

In goes a base with a WordPiece tokenizer; out comes one whose tokenizer, and whose table of embeddings, lacks the tokens
that no text of the training has and that are rare in English.
"""

import json
import shutil
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from models.errors import InputError
from models.make import LICENCES, copy_files
from models.source import read_tokenizer
from training.base import Base


def with_vocabulary(base: Base, ids: Iterable[list[int]], most: int, folder: Path) -> Base:
    """The base with `most` tokens: those of `ids`, and then the most common. Writes the tokenizer to `folder`.

    Texts that have only such tokens are read as before. Raises `InputError`.
    """
    content = json.loads((base.folder / "tokenizer.json").read_text(encoding="utf-8"))
    model = content["model"]
    if model.get("type") != "WordPiece":
        raise InputError(f"--vocabulary works with a WordPiece tokenizer, and that of `{base.folder}` is none")
    by_id = {number: token for token, number in model["vocab"].items()}
    special = {entry["id"] for entry in content["added_tokens"]}
    processor = content.get("post_processor") or {}
    if special - by_id.keys() or processor.get("type") not in (None, "TemplateProcessing"):
        raise InputError(
            f"--vocabulary cannot number the tokens of `{base.folder / 'tokenizer.json'}` anew (its added tokens, or "
            "its post-processor): leave it out"
        )
    for name in (model["unk_token"], (content.get("padding") or {}).get("pad_token")):
        special |= {model["vocab"][name]} if name in model["vocab"] else set()
    letters = {number for number, token in by_id.items() if token.isascii() and len(token.removeprefix("##")) == 1}
    needed = special | letters | {number for one in ids for number in one}
    if not len(needed) <= most <= len(by_id):
        raise InputError(
            f"--vocabulary is {most}: give {len(needed)}, which the posts need, to {len(by_id)}, which the base has"
        )
    # Whoever made the vocabulary numbered common tokens first.
    others = [number for number in sorted(by_id) if number not in needed and not by_id[number].startswith("[unused")]
    kept = sorted([*needed, *others[: most - len(needed)]])
    new = {old: place for place, old in enumerate(kept)}
    model["vocab"] = {by_id[old]: place for old, place in new.items()}
    for entry in content["added_tokens"]:
        entry["id"] = new[entry["id"]]
    for entry in processor.get("special_tokens", {}).values():
        entry["ids"] = [new[old] for old in entry["ids"]]
    if content.get("padding"):
        content["padding"]["pad_id"] = new[content["padding"]["pad_id"]]
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    (folder / "tokenizer.json").write_text(json.dumps(content, ensure_ascii=False), encoding="utf-8")
    copy_files(base.folder, folder, ("config.json", "tokenizer_config.json", *LICENCES))
    return replace(base, folder=folder, tokenizer=read_tokenizer(folder), weights=base.folder, kept=tuple(kept))
