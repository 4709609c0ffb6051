"""`manifest.toml`: what a program has to know of a model folder, and the vectors by which it proves a load.

tools/README.md describes the file. Read by people, so it is written in their order, not in a library's.
"""

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from models.inputs import INPUTS, MASKED
from models.kernels import DISABLED_OPTIMIZERS
from models.source import Source
from models.texts import VECTORS
from models.verify import Proof
from parity.reference import short, versions

FORMAT = 1
FILE = "manifest.toml"


@dataclass(frozen=True)
class Entry:
    """One graph of the folder: its inputs, how it did, and what it may do elsewhere."""

    name: str
    device: str
    precision: str
    files: list[str]
    inputs: list[str]
    tolerance: float
    error: float
    host_ops: list[str]

    def table(self) -> dict:
        """The graph's table in the manifest."""
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
    """Write the manifest of a folder in which everything else already stands."""
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
    """Type and shape of an input."""
    entry = INPUTS[name]
    return {"type": np.dtype(entry.kind).name, "shape": list(entry.shape)}


def vector(source: Source, proof: Proof, index: int) -> dict:
    """A pair, or of a classifier its first text alone, with its ids and what torch gives for it."""
    premise, hypothesis = VECTORS[index]
    pair = proof.pairs[index]
    types = {"token_type_ids": pair.type_ids} if source.has_types else {}
    logits = [short(logit) for logit in proof.logits[index]]
    second = {"hypothesis": hypothesis} if source.kind == "nli" else {}
    return {"premise": premise, **second, "input_ids": pair.ids, **types, "logits": logits}


def two_digits(value: float) -> float:
    """A number for people."""
    return float(f"{value:.2g}")


def sha256(path: Path) -> str:
    """SHA-256 of a file, hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def toml(content: dict) -> str:
    """A document of tables; a table within a table's table is written inline."""
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
    """Whether it is a table or a list of tables."""
    return isinstance(value, dict) or (isinstance(value, list) and bool(value) and isinstance(value[0], dict))


def pairs(table: dict) -> str:
    """The lines of a table."""
    return "".join(f"{quoted(key)} = {literal(value)}\n" for key, value in table.items())


def literal(value: object) -> str:
    """A value on one line. JSON's strings, numbers, booleans and lists are TOML's; its tables are not."""
    if isinstance(value, dict):
        inner = ", ".join(f"{quoted(key)} = {literal(entry)}" for key, entry in value.items())
        return f"{{ {inner} }}" if inner else "{}"
    return json.dumps(value, ensure_ascii=False)


def quoted(key: str) -> str:
    """A key, bare where it may be."""
    bare = key.isascii() and key.replace("-", "").replace("_", "").isalnum()
    return key if bare else json.dumps(key, ensure_ascii=False)
