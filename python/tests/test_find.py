"""Tests that the library and the model are found, and that GPUs are assigned to workers."""

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

import topicmill
from topicmill import _find


def test_a_variable_overrides_the_library_of_the_package(monkeypatch):
    monkeypatch.delenv("ORT_DYLIB_PATH", raising=False)
    found = Path(_find.library())
    assert found.is_file() and found.parts[-3:-1] == ("onnxruntime", "capi")
    assert found.name.startswith("libonnxruntime.") and "providers" not in found.name
    monkeypatch.setenv("ORT_DYLIB_PATH", "/theirs.so")
    assert _find.library() is None


def test_without_a_model_the_error_names_the_package_to_install(monkeypatch):
    assert Path(_find.model(None), "config.json").is_file()
    monkeypatch.setattr(_find, "_default_model_paths", lambda: iter([Path("/nowhere")]))
    with pytest.raises(topicmill.Error, match="reinstall the topicmill wheel"):
        _find.model(None)


@pytest.mark.parametrize(
    ("name", "gpus", "found"),
    [(3, 2, "cuda:1"), ("worker-2", 4, "cuda:2"), ("tcp://x", 2, "auto"), (3, 1, "auto"), (3, 0, "auto")],
)
def test_each_dask_worker_uses_its_own_gpu(monkeypatch, tmp_path, name, gpus, found):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    library = tmp_path / "libonnxruntime.so.1"
    library.with_name("libonnxruntime_providers_cuda.so").touch()
    for gpu in range(gpus):
        (tmp_path / "gpus" / str(gpu)).mkdir(parents=True)
    worker = SimpleNamespace(get_worker=lambda: SimpleNamespace(name=name))
    monkeypatch.setitem(sys.modules, "distributed", worker)
    monkeypatch.setattr(_find, "_GPUS", tmp_path / "gpus")
    monkeypatch.setattr(_find, "library", lambda: str(library))
    assert _find.device("auto") == found
    assert _find.device("cpu") == "cpu"
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    assert _find.device("auto") == "auto"
