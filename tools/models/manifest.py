"""`manifest.toml`: the properties of a model folder, and the vectors that verify a loaded model.

tools/README.md documents the file.
"""

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from models.inputs import INPUTS, MASKED
from models.source import Source
from models.texts import VECTORS
from models.verify import DISABLED_OPTIMIZERS, Proof
from parity.reference import short, versions

FORMAT = 1
FILE = "manifest.toml"


@dataclass(frozen=True)
class Entry:
    """One graph of the folder: its inputs, its measured error, and the error allowed on other machines."""

    name: str
    device: str
    precision: str
    files: list[str]
    inputs: list[str]
    tolerance: float
    error: float
    host_ops: list[str]

    def table(self) -> dict:
        """Returns the graph's table in the manifest."""
        return {
            "file": self.files[0],
            "data": self.files[1:],
            "device": self.device,
            "precision": self.precision,
            "inputs": self.inputs,
            "tolerance": two_digits(self.tolerance),
            "error": two_digits(self.error),
            "depends_on_batch": self.precision == "int8",
            "host_ops": self.host_ops,
            "session": {"optimization.disable_specified_optimizers": ";".join(DISABLED_OPTIMIZERS)},
        }


def write_manifest(folder: Path, source: Source, entries: list[Entry], proof: Proof) -> None:
    """Writes the manifest of an otherwise complete folder."""
    filling = source.filling
    decoder = {} if filling.decoder_start_id is None else {"decoder_start_id": filling.decoder_start_id}
    used = {name for entry in entries for name in entry.inputs}
    content = {
        "format": FORMAT,
        "kind": source.kind,
        "source": source.folder.resolve().name,
        "family": source.family,
        "classes": source.classes,
        "max_tokens": source.max_tokens,
        "vocab_size": source.config.vocab_size,
        "made_with": versions(),
        "files": {path.name: sha256(path) for path in sorted(folder.iterdir())},
        "contract": {
            "output": "logits",
            "pad_id": filling.pad_id,
            **decoder,
            "masked": MASKED,
        },
        "inputs": {name: input_table(name) for name in INPUTS if name in used},
        "graphs": {entry.name: entry.table() for entry in entries},
        "vectors": [vector(source, proof, index) for index in range(len(VECTORS))],
    }
    (folder / FILE).write_text(toml(content), encoding="utf-8")


def input_table(name: str) -> dict:
    """Returns the type and shape of an input."""
    entry = INPUTS[name]
    return {"type": np.dtype(entry.kind).name, "shape": list(entry.shape)}


def vector(source: Source, proof: Proof, index: int) -> dict:
    """Returns one entry of `[[vectors]]`: texts, ids and torch's logits."""
    pair = proof.pairs[index]
    types = {"token_type_ids": pair.type_ids} if source.has_types else {}
    logits = [short(logit) for logit in proof.logits[index]]
    return {**source.vector(index), "input_ids": pair.ids, **types, "logits": logits}


def two_digits(value: float) -> float:
    """Rounds a number for display."""
    return float(f"{value:.2g}")


def sha256(path: Path) -> str:
    """Returns the SHA-256 of a file, in hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def toml(content: dict) -> str:
    """Returns a TOML document of tables; tables nested deeper than two levels are inline."""
    plain = {key: value for key, value in content.items() if not is_table(value)}
    blocks = [pairs(plain)]
    for key, value in content.items():
        if key in plain:
            continue
        if isinstance(value, list):
            blocks += [f"[[{key}]]\n{pairs(table)}" for table in value]
        elif all(isinstance(inner, dict) for inner in value.values()):
            blocks += [f"[{key}.{quoted(name)}]\n{pairs(table)}" for name, table in value.items()]
        else:
            blocks.append(f"[{key}]\n{pairs(value)}")
    return "\n".join(blocks)


def is_table(value: object) -> bool:
    """True for a table or a list of tables."""
    return isinstance(value, dict) or (isinstance(value, list) and bool(value) and isinstance(value[0], dict))


def pairs(table: dict) -> str:
    """Returns the lines of a table."""
    return "".join(f"{quoted(key)} = {literal(value)}\n" for key, value in table.items())


def literal(value: object) -> str:
    """Returns a value on one line. JSON strings, numbers, booleans and lists are valid TOML; JSON objects are not."""
    if isinstance(value, dict):
        inner = ", ".join(f"{quoted(key)} = {literal(entry)}" for key, entry in value.items())
        return f"{{ {inner} }}" if inner else "{}"
    return json.dumps(value, ensure_ascii=False)


def quoted(key: str) -> str:
    """Returns a key, quoted only if TOML requires it."""
    bare = key.isascii() and key.replace("-", "").replace("_", "").isalnum()
    return key if bare else json.dumps(key, ensure_ascii=False)
