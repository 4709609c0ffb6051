#!/usr/bin/env python3
"""Whether OpenVINO's int8 in groups is faster than ONNX Runtime's dynamic int8, at the shape of an NLI model.

    python benches/agreement/groups.py FOLDER [--rounds 5] [--ways NAME,NAME]

FOLDER is a model folder of tools/model.py with `cpu-fp32` and `cpu-int8`. The Python needs what tools/requirements.txt
names, and `openvino`. The script stores the weights of `cpu-fp32` in int8, one scale a column, with DequantizeLinear in
front of each product that `cpu-int8` computes in int8, too. OpenVINO then rounds the inputs of these products to int8,
so many numbers with one scale.

Everything runs on one thread. The ways take turns, and the shortest time of the processor of each counts. Errors are
those of the logits against float32 in ONNX Runtime. The last column says how far the logits of the same rows are off
in a batch of fewer rows.
"""

import argparse
import sys
import tempfile
import time
import tomllib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import openvino
from onnx import helper, numpy_helper

sys.path.insert(0, str(Path(__file__).resolve().parent / "../../tools"))

from models.kernels import DISABLED_OPTIMIZERS
from models.quantize import left_alone
from parity.export import save_graph

SHAPES = ((16, 24), (4, 127))
GROUPS = (32, 64, 128, 256, 1024)
EXACT, INT8 = "ort fp32", "ort int8"


def with_int8_weights(path: Path) -> onnx.ModelProto:
    """The graph of `path`, the weights of its products stored in int8."""
    model = onnx.load(path)
    graph, alone = model.graph, set(left_alone(model))
    weights = {tensor.name: tensor for tensor in graph.initializer}
    products = [node for node in graph.node if node.op_type == "MatMul" and node.name not in alone]
    for name in dict.fromkeys(node.input[1] for node in products):
        values = numpy_helper.to_array(weights[name])
        scales = np.maximum(np.abs(values).max(0) / 127, 1e-12).astype(np.float32)
        numbers = np.rint(values / scales).astype(np.int8)
        graph.initializer.remove(weights[name])
        graph.initializer.append(numpy_helper.from_array(numbers, f"{name}/int8"))
        graph.initializer.append(numpy_helper.from_array(scales, f"{name}/scales"))
        node = helper.make_node("DequantizeLinear", [f"{name}/int8", f"{name}/scales"], [name], f"{name}/float", axis=1)
        graph.node.insert(0, node)
    return model


def ort(path: Path) -> Callable[[dict], np.ndarray]:
    """ONNX Runtime on one thread."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.add_session_config_entry("optimization.disable_specified_optimizers", ";".join(DISABLED_OPTIMIZERS))
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    return lambda inputs: session.run(["logits"], inputs)[0]


def ov(path: Path, precision: str, group: int) -> Callable[[dict], np.ndarray]:
    """OpenVINO as topicmill sets it, on one thread."""
    properties = {
        "INFERENCE_PRECISION_HINT": precision,
        "DYNAMIC_QUANTIZATION_GROUP_SIZE": str(group),
        "NUM_STREAMS": "1",
        "INFERENCE_NUM_THREADS": "1",
        "ENABLE_CPU_PINNING": "NO",
        "SCHEDULING_CORE_TYPE": "ANY_CORE",
    }
    request = openvino.Core().compile_model(path, "CPU", properties).create_infer_request()

    def run(inputs: dict) -> np.ndarray:
        request.infer(inputs)
        return np.array(request.get_output_tensor(0).data)

    return run


def ways(folder: Path, stored: Path) -> dict[str, Callable]:
    """What opens each way, by its name."""
    exact = folder / "cpu-fp32.onnx"
    found = {EXACT: lambda: ort(exact), INT8: lambda: ort(folder / "cpu-int8.onnx")}
    for precision in ("f32", "bf16"):
        found[f"ov {precision}"] = lambda precision=precision: ov(exact, precision, 0)
        for group in (0, *GROUPS):
            found[f"ov {precision} g{group}"] = lambda way=(precision, group): ov(stored, *way)
    return found


def batch(rows: int, width: int, vocabulary: int, seed: int) -> dict[str, np.ndarray]:
    """Random ids; no row is filled up."""
    ids = np.random.default_rng(seed).integers(0, vocabulary, (rows, width))
    return {"input_ids": ids, "lengths": np.full(rows, width, np.int32)}


def measure(opened: dict[str, Callable], shape: tuple[int, int], vocabulary: int, rounds: int) -> None:
    """One table."""
    rows, width = shape
    times = {name: [] for name in opened}
    for turn in range(rounds + 1):
        for name, run in opened.items():
            start = time.process_time()
            run(batch(*shape, vocabulary, 0))
            times[name] += [time.process_time() - start] if turn else []  # the first one warms up
    batches = [batch(*shape, vocabulary, seed) for seed in range(1, 4)]
    exact = np.concatenate([opened[EXACT](inputs) for inputs in batches])
    print(f"\n{rows} x {width}, spread of {exact.size} logits {exact.std():.2f}\n")
    print(f"| way | ms a pair | times as fast as {INT8} | error, largest | mean | fewer rows |")
    print("|---|---|---|---|---|---|")
    for name, run in opened.items():
        errors = np.abs(np.concatenate([run(inputs) for inputs in batches]) - exact)
        whole = run(batches[0])
        fewer = [{key: values[:count] for key, values in batches[0].items()} for count in (1, 2, 3)]
        off = max(np.abs(run(inputs) - whole[: len(inputs["lengths"])]).max() for inputs in fewer)
        best, ratio = min(times[name]) / rows, min(times[INT8]) / min(times[name])
        found = f"{errors.max():.2f} | {errors.mean():.3f} | {off:.0e}"
        print(f"| {name} | {best * 1e3:.1f} | {ratio:.2f} | {found} |", flush=True)


def main() -> None:
    """Read the arguments, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, metavar="FOLDER")
    parser.add_argument("--rounds", type=int, default=5, metavar="N")
    parser.add_argument("--ways", metavar="NAMES", help="by commas (default: all)")
    arguments = parser.parse_args()
    vocabulary = tomllib.loads((arguments.folder / "manifest.toml").read_text(encoding="utf-8"))["vocab_size"]
    print(f"onnxruntime {onnxruntime.__version__}, openvino {openvino.__version__}")
    with tempfile.TemporaryDirectory(dir=arguments.folder.parent) as scratch:
        stored = Path(scratch) / "int8.onnx"
        save_graph(with_int8_weights(arguments.folder / "cpu-fp32.onnx"), stored)
        all_ways = ways(arguments.folder, stored)
        names = arguments.ways.split(",") if arguments.ways else list(all_ways)
        opened = {name: all_ways[name]() for name in dict.fromkeys([EXACT, INT8, *names])}
        for shape in SHAPES:
            measure(opened, shape, vocabulary, arguments.rounds)


if __name__ == "__main__":
    main()
