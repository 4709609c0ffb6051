#!/usr/bin/env python3
"""Lists the execution provider that ONNX Runtime for CUDA chooses for each node, on a machine without a GPU.

    pip install --no-deps --target GPU onnxruntime-gpu==1.31.1
    PYTHONPATH=GPU .venv-tools/bin/python tools/placement.py MODEL... [--write]

MODEL is a graph (MODEL.onnx), or a Hugging Face folder whose CUDA graphs are built first.

ONNX Runtime places each node when it loads a graph, based on its list of kernels, before it computes anything. The
script therefore loads ONNX Runtime's CUDA provider over stubs of NVIDIA's libraries, which report success and use CPU
memory as GPU memory. Nothing is computed. `--write` writes the kernels of the placed nodes to models/cuda_kernels.txt,
as `make placement` does.

The script prints the placement of each graph. The exit code is 1 if a graph without the operators in `HOST_OPS` has a
node on the CPU, and 2 if the provider is missing. Needs a C compiler, `nm` and `readelf`.
"""

import argparse
import ctypes
import multiprocessing
import re
import subprocess
import sys
import tempfile
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from importlib.metadata import version
from importlib.util import find_spec
from itertools import chain
from pathlib import Path

import onnx

from models.graph import OPSET
from models.kernels import DISABLED_OPTIMIZERS, HOST_OPS, LIST, VERSION, signature_of_each

GPU, HOST = "CUDAExecutionProvider", "CPUExecutionProvider"
PROVIDER = "libonnxruntime_providers_cuda.so"
NVIDIA = re.compile(r"lib(cuda|cublas|cudnn|cufft|curand|nvrtc|nvJitLink)")

# Stubs that return more than success. Every other stub is `long NAME(void) { return 0; }`, where 0 means success.
GIVING = """
#include <stdlib.h>
#include <string.h>
static char something[1 << 16];
static int take(void **to, size_t size) {
    *to = aligned_alloc(256, (size + 256) / 256 * 256);
    return *to ? 0 : 2;
}
int cudaMalloc(void **to, size_t size) { return take(to, size); }
int cudaMallocAsync(void **to, size_t size, void *stream) { return take(to, size); }
int cudaMallocHost(void **to, size_t size) { return take(to, size); }
int cudaHostAlloc(void **to, size_t size, unsigned flags) { return take(to, size); }
int cudaFree(void *memory) { free(memory); return 0; }
int cudaFreeHost(void *memory) { free(memory); return 0; }
int cudaMemcpy(void *to, const void *from, size_t size, int kind) { memmove(to, from, size); return 0; }
int cudaMemcpyAsync(void *to, const void *from, size_t size, int kind, void *stream) {
    memmove(to, from, size);
    return 0;
}
int cudaMemset(void *to, int value, size_t size) { memset(to, value, size); return 0; }
int cudaMemsetAsync(void *to, int value, size_t size, void *stream) { memset(to, value, size); return 0; }
int cudaGetDeviceCount(int *count) { *count = 1; return 0; }
int cudaGetDevice(int *device) { *device = 0; return 0; }
int cudaDriverGetVersion(int *version) { *version = 13000; return 0; }
int cudaRuntimeGetVersion(int *version) { *version = 13000; return 0; }
int cudaMemGetInfo(size_t *unused, size_t *total) { *unused = *total = 80ull << 30; return 0; }
int cudaDeviceGetAttribute(int *value, int attribute, int device) {
    *value = attribute == 75 ? 9 : attribute == 76 ? 0 : attribute == 16 ? 132 : 1024; /* an H100 */
    return 0;
}
int cudaGetDeviceProperties(char *of, int device) {
    memset(of, 0, 512);
    strcpy(of, "none");
    *(size_t *)(of + 288) = 80ull << 30;
    *(size_t *)(of + 296) = 48 << 10;
    *(int *)(of + 308) = 32;    /* threads per warp */
    *(int *)(of + 320) = 1024;  /* threads per block */
    *(int *)(of + 360) = 9;     /* compute capability 9.0 */
    return 0;
}
const char *cudaGetErrorString(int error) { return "none"; }
const char *cudaGetErrorName(int error) { return "none"; }
const char *cublasGetStatusString(int error) { return "none"; }
const char *cudnnGetErrorString(int error) { return "none"; }
size_t cudnnGetVersion(void) { return 92600; }
size_t cublasLtGetVersion(void) { return 130400; }
void **__cudaRegisterFatBinary(void *binary) { return (void **)something; }
unsigned __cudaPushCallConfiguration(void) { return 0; }
"""
HANDLES = ("cudaStreamCreate", "cudaEventCreate", "cublasCreate", "cublasLtCreate", "cudnnCreate", "cufftCreate")


def main() -> int:
    """Parses the arguments and runs the command; returns the exit code."""
    arguments = parse()
    place = find_spec("onnxruntime")
    provider = Path(place.origin).parent / "capi" / PROVIDER if place else None
    if not provider or not provider.is_file():
        print(f"`{PROVIDER}` is missing: put a folder with `onnxruntime-gpu` first on PYTHONPATH", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory() as scratch:
        write_stubs(provider, Path(scratch))
        kernels, wrong = set(), False
        for path in graphs_of(arguments.models, Path(scratch)):
            graph = onnx.load(path, load_external_data=False)
            whole = not HOST_OPS.intersection(node.op_type for node in graph.graph.node)
            # The original graph contains the declared types of each node; the optimised graph replaces some nodes.
            by_name = signature_of_each(graph)
            raw = placed(path, optimized=False, strict=False)
            kernels |= {by_name[name] for where, name, _ in raw if where == GPU and name in by_name}
            print(f"{path.stem} in {path.parent.name}", flush=True)
            try:
                runs = placed(path, optimized=True, strict=whole)
            except Exception as problem:  # the runtime raises many kinds of exceptions
                print(f"  rejected: {problem}")
                runs, wrong = [], True
            for title, nodes in (("as it is", raw), ("as it runs", runs)):
                counts = Counter((where, kind) for where, _, kind in nodes)
                for where in sorted({where for where, _ in counts}):
                    listed = ", ".join(f"{kind} {n}" for (of, kind), n in counts.most_common() if of == where)
                    print(f"  {title}, on {where}: {sum(n for (of, _), n in counts.items() if of == where)}: {listed}")
    if arguments.write:
        LIST.write_text(as_list(kernels), encoding="utf-8")
    return int(wrong)


def graphs_of(models: list[Path], folder: Path) -> list[Path]:
    """Returns the given graphs and the Hugging Face folders' CUDA graphs in both precisions."""
    graphs = [path for path in models if not path.is_dir()]
    folders = [path for path in models if path.is_dir()]
    # In a separate process, because torch loads NVIDIA's own libraries, which would take precedence over the stubs.
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as workers:
        return [*graphs, *chain.from_iterable(workers.map(build, folders, [folder] * len(folders)))]


def build(source: Path, folder: Path) -> list[Path]:
    """Writes the CUDA graphs of a Hugging Face folder and returns their paths."""
    from models.make import built
    from models.source import read_source
    from training.mean import MEAN, POOLING

    found, paths = read_source(source), []
    (folder / source.name).mkdir()
    for head in ("", "-mean") if found.family == "bert" else ("",):
        if head:  # pooled like the models of tools/train_default.py
            setattr(found.config, POOLING, MEAN)
        for precision in ("fp16", "fp32"):
            paths.append(folder / source.name / f"cuda{head}-{precision}.onnx")
            onnx.save(built(found, "cuda", precision), paths[-1])
    return paths


def write_stubs(provider: Path, folder: Path) -> None:
    """Compiles and loads a stub of each NVIDIA library that the provider needs; the stubs remain loaded."""
    listed = subprocess.run(["readelf", "-d", provider], check=True, capture_output=True, text=True).stdout
    needed = [name for name in re.findall(r"NEEDED.*\[(.*)\]", listed) if NVIDIA.match(name)]
    symbols = subprocess.run(["nm", "-D", "--undefined-only", provider], check=True, capture_output=True, text=True)
    wanted = {line.split()[-1].split("@")[0] for line in symbols.stdout.splitlines() if is_nvidia(line)}
    source = GIVING
    given = set(re.findall(r"\b(\w+)\(", GIVING))
    for name in sorted(wanted - given):
        if name.startswith(HANDLES):
            source += f"int {name}(void **to) {{ *to = something; return 0; }}\n"
        else:
            source += f"long {name}(void) {{ return 0; }}\n"
    (folder / "all.c").write_text(source)
    for name in needed:
        flags = ["-w", "-shared", "-fPIC", f"-Wl,-soname,{name}", "-o", folder / name]
        subprocess.run(["cc", *flags, folder / "all.c"], check=True)
        ctypes.CDLL(str(folder / name), mode=ctypes.RTLD_GLOBAL)


def is_nvidia(line: str) -> bool:
    """True if a line of `nm` names a function in NVIDIA's libraries."""
    return " w " not in line and re.match(r"(__)?(cu[A-Zdbf]|cudnn|nvrtc|nvJit)", line.split()[-1]) is not None


def placed(path: Path, *, optimized: bool, strict: bool) -> list[tuple[str, str, str]]:
    """Returns the placement of each node: provider, name, operator."""
    import onnxruntime  # after the stubs are loaded

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.add_session_config_entry("session.record_ep_graph_assignment_info", "1")
    options.add_session_config_entry("optimization.disable_specified_optimizers", ";".join(DISABLED_OPTIMIZERS))
    if strict:  # as topicmill loads a CUDA graph
        options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
    if not optimized:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    # TF32 is off, as topicmill sets it through the `ort` crate; the runtime's own default is on.
    session = onnxruntime.InferenceSession(path, options, providers=[(GPU, {"use_tf32": "false"})])
    if GPU not in session.get_providers():
        raise SystemExit("the provider was not loaded")
    if session.get_provider_options()[GPU]["use_tf32"] != "0":
        raise SystemExit("TF32 is not off")
    return [
        (part.ep_name, node.name, f"{node.domain}:{node.op_type}" if node.domain else node.op_type)
        for part in session.get_provider_graph_assignment_info()
        for node in part.get_nodes()
    ]


def as_list(kernels: set[str]) -> str:
    """Returns the content of cuda_kernels.txt."""
    lines = [
        f"{VERSION}{version('onnxruntime-gpu')}, opset {OPSET}: nodes that its CUDA provider computes, with the types "
        "of their inputs and outputs.",
        "# Made by placement.py from the graphs of model.py; not a list of all kernels.",
        *sorted(kernels),
    ]
    return "\n".join(lines) + "\n"


def parse() -> argparse.Namespace:
    """Parses the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", type=Path, metavar="MODEL")
    parser.add_argument("--write", action="store_true", help="write models/cuda_kernels.txt")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
