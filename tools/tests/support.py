"""Tiny models, made once per run, and changed copies of them."""

import atexit
import contextlib
import functools
import io
import json
import os
import shutil
import tempfile
import tomllib
from collections.abc import Callable
from pathlib import Path

from models import QUIET

os.environ |= QUIET  # before any library reads the environment

from safetensors.torch import load_file, save_file

import model
import random_model

BUILT = ("tiny-bart", "tiny-bert", "tiny-roberta")
SHAPES = (*BUILT, "tiny-deberta")
ROOT = Path(tempfile.mkdtemp(prefix="topicmill-tools-"))
atexit.register(shutil.rmtree, ROOT, ignore_errors=True)


@functools.cache
def source_folder(shape: str) -> Path:
    """Returns a read-only Hugging Face folder with random weights."""
    folder = ROOT / f"hf-{shape}"
    random_model.write_model(shape, folder)
    return folder


@functools.cache
def model_folder(shape: str) -> Path:
    """Returns a read-only model folder made from `source_folder`, with every graph."""
    folder = ROOT / f"made-{shape}"
    code, said = run(source_folder(shape), folder)
    assert code == 0, said
    return folder


def copy_of(shape: str) -> Path:
    """Returns a writable copy of `source_folder`."""
    folder = Path(tempfile.mkdtemp(dir=ROOT)) / "hf"
    shutil.copytree(source_folder(shape), folder)
    return folder


def change_json(path: Path, **fields: object) -> None:
    """Sets fields of a JSON file; a field that is None is removed."""
    content = json.loads(path.read_text(encoding="utf-8")) | fields
    content = {name: value for name, value in content.items() if value is not None}
    path.write_text(json.dumps(content), encoding="utf-8")


def remove(name: str) -> Callable[[Path], object]:
    """Removes a file."""
    return lambda folder: (folder / name).unlink()


def halve(name: str) -> Callable[[Path], object]:
    """Truncates a file in the middle, as an interrupted download does."""

    def change(folder: Path) -> None:
        content = (folder / name).read_bytes()
        (folder / name).write_bytes(content[: len(content) // 2])

    return change


def drop_weights(part: str) -> Callable[[Path], object]:
    """Removes the weights whose names contain `part`."""

    def change(folder: Path) -> None:
        path = folder / "model.safetensors"
        kept = {name: tensor for name, tensor in load_file(path).items() if part not in name}
        save_file(kept, path, {"format": "pt"})

    return change


def run(*words: object) -> tuple[int, str]:
    """Runs tools/model.py in this process; returns the exit code and stderr."""
    said = io.StringIO()
    with contextlib.redirect_stderr(said):
        code = model.main([str(word) for word in words])
    return code, said.getvalue()


def manifest_of(folder: Path) -> dict:
    """Reads the manifest with the standard library."""
    return tomllib.loads((folder / "manifest.toml").read_text(encoding="utf-8"))
