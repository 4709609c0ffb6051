"""Finds the model folder, the device and the inference libraries."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import re
import socket
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

from topicmill._native import Error

#: Folder in which the NVIDIA driver lists its GPUs.
_GPUS = Path("/proc/driver/nvidia/gpus")

DEFAULT_MODEL = "models/minilm-reddit-topics"


def model(named: str | None) -> str:
    """Returns a model folder; `None` means the default model, which comes with the package."""
    if named is None:
        found = next((folder for folder in _default_model_paths() if folder.is_dir()), None)
        if found is None:
            raise Error(
                f"the default model is not installed with the package on `{socket.gethostname()}`: "
                "reinstall the topicmill wheel, or use the path of a model folder"
            )
        return str(found)
    folder = Path(named).expanduser()
    if not folder.is_dir():
        raise Error(
            f"there is no model folder `{named}` on `{socket.gethostname()}`, seen from `{os.getcwd()}`: "
            "copy the folder there, or use an absolute path that every worker can read"
        )
    return str(folder)


def _default_model_paths() -> Iterator[Path]:
    """Yields candidate paths of the default model, most likely first."""
    # `pip install --target` and `--user` use different prefixes, which only the list of files shows.
    try:
        files = importlib.metadata.files("topicmill") or []
    except importlib.metadata.PackageNotFoundError:
        files = []
    for file in files:
        if file.as_posix().endswith(f"{DEFAULT_MODEL}/config.json"):
            yield Path(os.path.abspath(str(file.locate()))).parent
    yield Path(sysconfig.get_path("data")) / "share/topicmill" / DEFAULT_MODEL
    # The source tree, for `maturin develop`.
    yield Path(__file__).parents[2] / DEFAULT_MODEL


def device(asked: str) -> str:
    """Returns the device; with several GPUs, "auto" assigns one to each Dask worker."""
    distributed = sys.modules.get("distributed")
    if asked != "auto" or distributed is None or "CUDA_VISIBLE_DEVICES" in os.environ:
        return asked
    try:
        worker = re.search(r"\d+$", str(distributed.get_worker().name))
    except ValueError:  # Not in a Dask worker.
        return asked
    found = library()
    has_cuda = found and Path(found).with_name("libonnxruntime_providers_cuda.so").exists()
    gpus = len(list(_GPUS.glob("*"))) if has_cuda else 0
    return f"cuda:{int(worker[0]) % gpus}" if worker and gpus > 1 else asked


def library() -> str | None:
    """Returns the library of the `onnxruntime` package, without importing it; `None` to search elsewhere."""
    if os.environ.get("ORT_DYLIB_PATH"):
        return None
    # The prefix excludes `libonnxruntime_providers_shared.so`, which is in the same folder.
    return _in_package("onnxruntime", "capi", "libonnxruntime.")


def openvino() -> str | None:
    """Returns the library of the `openvino` package, without importing it."""
    return _in_package("openvino", "libs", "libopenvino_c.")


def _in_package(package: str, below: str, prefix: str) -> str | None:
    """Returns the library in a folder of an installed package."""
    spec = importlib.util.find_spec(package)
    folders = (spec.submodule_search_locations if spec else None) or []
    for folder in folders:
        for file in sorted((Path(folder) / below).glob("*"), reverse=True):
            if file.name.startswith(prefix):
                return str(file)
    return None
