"""Tests of threads, forks, pickles and signals."""

import multiprocessing
import os
import pickle
import shutil
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
from conftest import LABELS, REPOSITORY, texts

import topicmill
from topicmill import Labeler, _labeler

MODEL = REPOSITORY / "models/minilm-reddit-topics"


def test_a_model_is_loaded_lazily_and_once():
    first, second = (Labeler(labels=LABELS, threads=1, template="Late {}.") for _ in range(2))
    assert first._scorer_if_loaded() is None
    first.scores(["soup"])
    assert second._scorer() is first._scorer_if_loaded()
    assert Labeler(labels=LABELS, threads=1, template="Later {}.")._scorer() is not first._scorer()


def test_threads_share_a_labeler(labeler):
    some, found = texts(40), []
    alone = labeler.scores(some)
    threads = [threading.Thread(target=lambda: found.append(labeler.scores(some))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4 and all((one == alone).all() for one in found)


def test_scoring_releases_the_gil(labeler):
    some, turns, done = texts(60), [], threading.Event()

    def turn():
        while not done.is_set():
            turns.append(time.monotonic())
            time.sleep(0.001)

    thread = threading.Thread(target=turn)
    thread.start()
    begun = time.monotonic()
    labeler.scores(some)
    ended = time.monotonic()
    done.set()
    thread.join()
    # With the GIL held, the other thread would get no turn.
    within = [at for at in turns if begun < at < ended]
    assert len(within) > 10, f"{len(within)} turns in {ended - begun:.3f} s"


def in_fork(do) -> str:
    """Runs a function in a fork of this process, and returns its result or error as text."""
    out, into = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            said = str(do())
        except BaseException as error:
            said = repr(error)
        os.write(into, said.encode())
        # Run all destructors, in a process without its parent's threads.
        os.close(into)
        os.close(out)
        sys.stdout = sys.stderr = open(os.devnull, "w")
        import gc

        _labeler._process.cached.clear()
        gc.collect()
        os._exit(0)
    os.close(into)
    deadline = time.monotonic() + 60
    while os.waitpid(child, os.WNOHANG) == (0, 0):
        if time.monotonic() > deadline:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            pytest.fail("the fork hangs")
        time.sleep(0.01)
    with os.fdopen(out) as said:
        return said.read()


@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
def test_a_fork_reloads_the_model():
    labeler = Labeler(labels=LABELS, threads=2, template="Forked {}.")
    some = texts(40)
    here = labeler.scores(some)
    seen = labeler._scorer().process
    assert seen == os.getpid()

    def child():
        scores = labeler.scores(some)
        assert labeler._scorer().process == os.getpid() != seen
        return float(np.abs(scores - here).max()) < 1e-5

    assert in_fork(child) == "True"
    # Fork while another thread is computing and holds the locks.
    thread = threading.Thread(target=lambda: labeler.scores(texts(250)))
    thread.start()
    time.sleep(0.05)
    assert in_fork(child) == "True"
    thread.join()
    assert (labeler.scores(some) == here).all()


@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_process_pools_give_the_same_scores(labeler, method):
    some = texts(20)
    with multiprocessing.get_context(method).Pool(2) as pool:
        parts = pool.map(labeler.scores, [some[:10], some[10:]])
    assert np.abs(np.concatenate(parts) - labeler.scores(some)).max() < 1e-5


def test_a_pickle_contains_settings_but_no_model(labeler):
    pickled = pickle.dumps(labeler)
    assert len(pickled) < 2000
    again = pickle.loads(pickled)
    assert again.labels == LABELS and again._scorer() is labeler._scorer()
    # The model of an unpickled labeler is cached for the next task of the worker.
    lone = pickle.loads(pickle.dumps(Labeler(labels=LABELS, threads=1, template="Held {}.")))
    scorer = lone._scorer()
    pickled = pickle.dumps(lone)
    del lone
    assert pickle.loads(pickled)._scorer() is scorer
    for number in range(_labeler._MAX_CACHED):
        pickle.loads(pickle.dumps(Labeler(labels=[str(number)], threads=1)))._of_process()
    assert len(_labeler._process.cached) == _labeler._MAX_CACHED


def test_a_pickle_from_a_different_version_is_rejected(labeler, monkeypatch):
    monkeypatch.setattr(_labeler, "__version__", "9.9.9")
    pickled = pickle.dumps(labeler)
    monkeypatch.undo()
    with pytest.raises(topicmill.Error, match=r"pickled by topicmill 9\.9\.9, and .* is installed here"):
        pickle.loads(pickled)


def test_a_worker_with_a_different_model_or_none_reports_it(tmp_path):
    folder = shutil.copytree(MODEL, tmp_path / "model")
    labeler = Labeler(model=folder, labels=LABELS, threads=1).load()
    pickled = pickle.dumps(labeler)
    del labeler
    _labeler._process.cached.clear()
    config = folder / "config.json"
    config.write_text(config.read_text().replace('"softmax_scale": 21.0', '"softmax_scale": 20.0'))
    with pytest.raises(topicmill.Error, match="differs from the one that the Labeler was pickled with"):
        pickle.loads(pickled).scores(["soup"])
    shutil.rmtree(folder)
    _labeler._process.cached.clear()
    with pytest.raises(topicmill.Error, match="copy the folder there"):
        pickle.loads(pickled).scores(["soup"])


def test_ctrl_c_cancels_between_batches():
    code = (
        "import sys, topicmill, time\n"
        "labeler = topicmill.Labeler(labels=['a', 'b'], threads=1).load()\n"
        "texts = ['some words of a text ' * 20] * 100_000\n"
        "print('ready', flush=True)\n"
        "try:\n    labeler.scores(texts)\n"
        "except KeyboardInterrupt:\n"
        "    print('interrupted', flush=True)\n"
        "    print(labeler.scores(['goes on']).shape)\n"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout.readline() == "ready\n"
        time.sleep(1)
        sent = time.monotonic()
        child.send_signal(signal.SIGINT)
        assert child.stdout.readline() == "interrupted\n"
        # Scoring all texts would take minutes.
        assert time.monotonic() - sent < 10
        assert child.stdout.readline() == "(1, 2)\n"
        assert child.wait(60) == 0
