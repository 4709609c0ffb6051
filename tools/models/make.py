"""Makes a model folder from a verified Hugging Face model; the entry point of this package."""

import json
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import onnx

from models import GraphError, InputError, bart, encoder
from models.export import exported_source, save_graph
from models.manifest import Entry, write_manifest
from models.quantize import quantized
from models.source import BUILT, COPIED, Source
from models.verify import Proof, host_ops, op_counts, proof_of, verify

GRAPHS = {"cpu-fp32": ("cpu", "fp32"), "cpu-int8": ("cpu", "int8"), "cuda-fp16": ("cuda", "fp16")}

LICENCES = ("LICENSE", "LICENSE.txt", "LICENSE.md", "NOTICE")

Say = Callable[[str], None]


def make_folder(source: Source, out: Path, names: list[str], say: Say) -> None:
    """Makes the folder `out` atomically.

    Raises `GraphError` if a graph is wrong, and `InputError` if `out` exists and is not an empty folder.
    """
    with new_folder(out) as folder:
        copy_files(source.folder, folder, (*COPIED, *LICENCES))
        set_keys(folder / "config.json", source.settings)
        maker = Maker(source, proof_of(source), folder.parent, folder, say)
        entries = [maker.make(name) for name in names]
        write_manifest(folder, source, entries, maker.proof)


@contextmanager
def new_folder(out: Path) -> Iterator[Path]:
    """Yields an empty folder that is renamed to `out` at the end, unless an exception is raised.

    The yielded folder's parent is for intermediate files. Raises `InputError` if `out` exists and is not an empty
    folder.
    """
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise InputError(f"`{out}` exists and is not an empty folder: choose a different path, or remove it")
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".model-", dir=out.parent) as scratch:
        folder = Path(scratch) / "folder"
        folder.mkdir()
        yield folder
        folder.replace(out)


def copy_files(source: Path, folder: Path, names: tuple[str, ...]) -> None:
    """Copies the named files that `source` contains."""
    for name in names:
        if (source / name).is_file():
            shutil.copyfile(source / name, folder / name)


def set_keys(path: Path, keys: dict) -> None:
    """Sets keys of a JSON object; a file that has these values is not written. A missing key has the value `None`."""
    content = json.loads(path.read_text(encoding="utf-8"))
    changed = {key: value for key, value in keys.items() if content.get(key) != value}
    if changed:
        path.write_text(json.dumps(content | changed, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


class Maker:
    """Makes the graphs of one folder; intermediate files are in `work`."""

    def __init__(self, source: Source, proof: Proof, work: Path, folder: Path, say: Say):
        self.source, self.proof, self.work, self.folder, self.say = source, proof, work, folder, say
        self.tensors = source.tensors()

    def make(self, name: str) -> Entry:
        """Builds, saves and verifies one graph."""
        device, precision = GRAPHS[name]
        if precision == "int8":
            graph = quantized(self.proved_fp32(device))
        else:
            if precision == "fp16":
                # Rounding in half precision could hide a wrong connection: verify the same nodes in float32.
                self.proved_fp32(device)
            graph = self.build(device, precision)
        return self.keep(name, graph, self.folder)

    def proved_fp32(self, device: str) -> Path:
        """Returns the device's verified float32 graph; makes one in `work` if the folder has none."""
        name = f"{device}-fp32"
        path = self.folder / f"{name}.onnx"
        if path.exists():
            return path
        path = self.work / path.name
        if not path.exists():
            self.keep(name, self.build(device, "fp32"), self.work)
        return path

    def build(self, device: str, precision: str) -> onnx.ModelProto:
        """Builds the graph of the model's family."""
        if self.source.family not in BUILT:
            return exported_source(self.source, precision)
        return built(self.source, device, precision, self.tensors)

    def keep(self, name: str, graph: onnx.ModelProto, folder: Path) -> Entry:
        """Writes a graph into `folder` and verifies it there. Raises `GraphError` if the graph is wrong."""
        device, precision = name.split("-")
        stopping = host_ops(graph)
        if device == "cuda" and stopping and self.source.family in BUILT:
            raise GraphError(f"{name} has nodes that make the GPU wait: {', '.join(stopping)}")
        ops, inputs = op_counts(graph), [entry.name for entry in graph.graph.input]
        path = folder / f"{name}.onnx"
        save_graph(graph, path)
        error = verify(self.source, path, self.proof, self.proof.limit(precision))
        files = sorted(entry.name for entry in folder.glob(f"{name}.onnx*"))
        size = sum((folder / file).stat().st_size for file in files)
        listed = ", ".join(f"{kind} {count}" for kind, count in ops.items())
        kept = "" if folder == self.folder else " (intermediate, not kept)"
        self.say(f"{name}{kept}: {size / 1e6:,.1f} MB, within {error:.1e} of torch\n  {listed}")
        return Entry(name, device, precision, files, inputs, self.proof.tolerance(precision, error), error, stopping)


def built(source: Source, device: str, precision: str, tensors: dict[str, np.ndarray] | None = None) -> onnx.ModelProto:
    """Builds the graph of a supported family, node by node."""
    builder = {"bart": bart, "encoder": encoder}[BUILT[source.family]]
    return builder.build(source.config, source.tensors() if tensors is None else tensors, device, precision)
