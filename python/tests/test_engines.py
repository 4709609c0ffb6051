"""Tests of OpenVINO, the alternative engine."""

import multiprocessing
import os
import pickle
import subprocess
import sys

import numpy as np
import pytest
from conftest import LABELS, texts
from test_processes import in_fork

import topicmill
from topicmill import Labeler, _find

is_here = _find.openvino() is not None
if not is_here and os.environ.get("TOPICMILL_OPENVINO_TESTS") == "must":
    raise RuntimeError("these tests need OpenVINO: install requirements/openvino.txt next to the package")
needs_openvino = pytest.mark.skipif(not is_here, reason="OpenVINO is not installed")


@pytest.fixture(scope="module")
def openvino() -> Labeler:
    return Labeler(labels=LABELS, background="none", threads=1, engine="openvino").load()


@needs_openvino
def test_both_engines_give_the_same_scores(labeler, openvino):
    assert (labeler.engine, openvino.engine, openvino.device) == ("onnxruntime", "openvino", "cpu")
    some = texts(60)
    assert np.abs(labeler.scores(some) - openvino.scores(some)).max() < 1e-4
    # The engine is not part of the model hash.
    assert openvino.model_hash == labeler.model_hash


@needs_openvino
def test_a_pickle_keeps_its_engine(openvino):
    again = pickle.loads(pickle.dumps(openvino))
    assert again.engine == "openvino" and again._scorer() is openvino._scorer()
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        [scores] = pool.map(openvino.scores, [["a recipe for bread"]])
    assert np.abs(scores - openvino.scores(["a recipe for bread"])).max() < 1e-5


@needs_openvino
@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
@pytest.mark.parametrize("threads", [1, 2])
def test_a_fork_reloads_openvino(threads):
    labeler = Labeler(labels=LABELS, threads=threads, engine="openvino", template="Forked {}.")
    some = texts(40)
    here = labeler.scores(some)

    def child():
        scores = labeler.scores(some)
        assert labeler._scorer().process == os.getpid()
        return float(np.abs(scores - here).max()) < 1e-5

    assert in_fork(child) == "True"
    assert (labeler.scores(some) == here).all()


def test_an_unknown_engine_is_rejected():
    with pytest.raises(ValueError, match="'auto', 'onnxruntime' or 'openvino'"):
        Labeler(engine="tensorrt")


def test_openvino_is_for_cpus(labeler):
    with pytest.raises(topicmill.Error, match=r'OpenVINO is used for CPUs only; use device="cpu"'):
        Labeler(labels=LABELS, engine="openvino", device="cuda:0").load()
    with pytest.raises(topicmill.Error, match='use engine="openvino", or precision="fp32"'):
        Labeler(labels=LABELS, engine="onnxruntime", precision="bf16", device="cpu").load()


def test_openvino_in_a_dask_worker_runs_on_the_cpu(monkeypatch):
    monkeypatch.setattr(_find, "device", lambda asked: "cuda:1")
    asked = {}
    monkeypatch.setattr("topicmill._labeler.Scorer", lambda settings: asked.update(settings))
    for engine, precision, device in [
        ("openvino", "auto", "auto"),
        ("auto", "bf16", "auto"),
        ("auto", "int8", "auto"),
        ("auto", "auto", "cuda:1"),
        ("onnxruntime", "fp32", "cuda:1"),
    ]:
        Labeler(engine=engine, precision=precision)._settings.load()
        assert (asked["engine"], asked["device"]) == (engine, device)


def engine_without(*libraries: str, tmp_path, **settings: object) -> str:
    """Returns the engine, or the error, of a process that cannot find some libraries."""
    code = (
        "from topicmill import Error, Labeler, _find\n"
        + "".join(f"_find.{library} = lambda: None\n" for library in libraries)
        + f"try:\n    print(Labeler(labels=['a', 'b'], threads=1, **{settings!r}).engine)\n"
        + "except Error as error:\n    print(error)\n"
    )
    # Hide this user's data folder and the repository's `.venv`.
    env = os.environ | {"HOME": str(tmp_path), "XDG_DATA_HOME": str(tmp_path), "ORT_DYLIB_PATH": ""}
    ran = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=env, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout.strip()


def test_without_openvino_the_error_names_the_package_to_install(tmp_path):
    said = engine_without("openvino", tmp_path=tmp_path, engine="openvino")
    assert said.startswith("cannot find OpenVINO: no library")
    assert said.endswith('; install topicmill[openvino], or use engine="onnxruntime"')
    assert engine_without("openvino", tmp_path=tmp_path) == "onnxruntime"


def test_without_onnx_runtime_the_error_names_the_package_to_install(tmp_path):
    for engine in ["auto", "onnxruntime"]:
        said = engine_without("library", tmp_path=tmp_path, engine=engine)
        assert said.startswith("cannot find ONNX Runtime: no library")
        assert said.endswith("install the package `onnxruntime` in the same environment as topicmill")
