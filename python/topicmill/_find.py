"""Where the model is, and the libraries that compute."""

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

#: Where the driver of NVIDIA lists its GPUs.
_GPUS = Path("/proc/driver/nvidia/gpus")

DEFAULT_MODEL = "models/minilm-reddit-topics"


def model(named: str | None) -> str:
    """The folder of a model; `None` means the one that the package carries."""
    if named is None:
        found = next((folder for folder in _shares() if folder.is_dir()), None)
        if found is None:
            raise Error(
                f"the default model is not installed beside the package on `{socket.gethostname()}`: "
                "install the wheel of topicmill again, or give the path of a model folder"
            )
        return str(found)
    folder = Path(named).expanduser()
    if not folder.is_dir():
        raise Error(
            f"there is no model folder `{named}` on `{socket.gethostname()}`, seen from `{os.getcwd()}`: "
            "copy the folder there, or give an absolute path that every worker can read"
        )
    return str(folder)


def _shares() -> Iterator[Path]:
    """Where the default model may be, the likeliest place first."""
    # `pip install --target` and `--user` have prefixes of their own, which only the list of files shows.
    try:
        files = importlib.metadata.files("topicmill") or []
    except importlib.metadata.PackageNotFoundError:
        files = []
    for file in files:
        if file.as_posix().endswith(f"{DEFAULT_MODEL}/config.json"):
            yield Path(os.path.abspath(str(file.locate()))).parent
    yield Path(sysconfig.get_path("data")) / "share/topicmill" / DEFAULT_MODEL
    # A package that is used where it was written: `maturin develop`.
    yield Path(__file__).parents[2] / DEFAULT_MODEL


def device(asked: str) -> str:
    """What to compute on: "auto" is a GPU for each worker of Dask, where there are several."""
    distributed = sys.modules.get("distributed")
    if asked != "auto" or distributed is None or "CUDA_VISIBLE_DEVICES" in os.environ:
        return asked
    try:
        worker = re.search(r"\d+$", str(distributed.get_worker().name))
    except ValueError:  # Nobody's worker.
        return asked
    found = library()
    knows_cuda = found and Path(found).with_name("libonnxruntime_providers_cuda.so").exists()
    gpus = len(list(_GPUS.glob("*"))) if knows_cuda else 0
    return f"cuda:{int(worker[0]) % gpus}" if worker and gpus > 1 else asked


def library() -> str | None:
    """The library of the package `onnxruntime`, which is not imported; `None` where the search goes on elsewhere."""
    if os.environ.get("ORT_DYLIB_PATH"):
        return None
    # `libonnxruntime_providers_shared.so` lies beside it.
    return _in_package("onnxruntime", "capi", "libonnxruntime.", "onnxruntime.dll")


def openvino() -> str | None:
    """The library of the package `openvino`, in the same way."""
    return _in_package("openvino", "libs", "libopenvino_c.", "openvino_c.dll")


def _in_package(package: str, below: str, unix: str, windows: str) -> str | None:
    """The library in a folder of an installed package."""
    spec = importlib.util.find_spec(package)
    folders = (spec.submodule_search_locations if spec else None) or []
    for folder in folders:
        for file in sorted((Path(folder) / below).glob("*"), reverse=True):
            if file.name.startswith(unix) or file.name == windows:
                return str(file)
    return None
