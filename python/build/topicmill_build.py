"""Builds the wheel with maturin, after copying the program and the default model to its data folder.

pip calls the functions; `make wheel` runs this file:

    python build/topicmill_build.py FOLDER [--profile PROFILE]
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import maturin
from maturin import (  # noqa: F401 (pip calls them)
    build_editable,
    build_sdist,
    get_requires_for_build_editable,
    get_requires_for_build_sdist,
    get_requires_for_build_wheel,
    prepare_metadata_for_build_editable,
    prepare_metadata_for_build_wheel,
)

PYTHON = Path(__file__).resolve().parents[1]
REPOSITORY = PYTHON.parent
DATA = PYTHON / "topicmill.data"
MODEL = "models/minilm-reddit-topics"

# maturin requires the folder even for metadata and editable builds.
DATA.mkdir(exist_ok=True)


def build_wheel(folder, config_settings=None, metadata_directory=None):
    """Builds the wheel; the entry point for pip."""
    options = os.environ.get("TOPICMILL_WHEEL_OPTIONS", "--profile release").split()
    stage_data(options)
    os.environ["MATURIN_PEP517_ARGS"] = " ".join(["--locked", *options, *glibc_tag()])
    return maturin.build_wheel(folder, config_settings, metadata_directory)


def stage_data(options):
    """Builds the program and copies it and the default model to the data folder."""
    shutil.rmtree(DATA, ignore_errors=True)
    shutil.copytree(
        REPOSITORY / MODEL,
        DATA / "data/share/topicmill" / MODEL,
        ignore=shutil.ignore_patterns(".*"),
    )
    command = ["cargo", "build", "--locked", "--package", "topicmill", "--bin", "topicmill"]
    command += [*options, "--message-format", "json-render-diagnostics"]
    built = subprocess.run(command, cwd=REPOSITORY, check=True, stdout=subprocess.PIPE)
    messages = map(json.loads, built.stdout.splitlines())
    [program] = filter(None, (message.get("executable") for message in messages))
    (DATA / "scripts").mkdir()
    shutil.copy2(program, DATA / "scripts")
    stage_pages(program)


def stage_pages(program):
    """Writes man pages and completion scripts to the folders that shells search in an environment."""
    share = DATA / "data/share"
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([program, "man", folder], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        shutil.copytree(Path(folder) / "man1", share / "man/man1")
        for script, place in [
            ("topicmill.bash", "bash-completion/completions/topicmill"),
            ("_topicmill", "zsh/site-functions/_topicmill"),
            ("topicmill.fish", "fish/vendor_completions.d/topicmill.fish"),
        ]:
            (share / place).parent.mkdir(parents=True)
            shutil.copy2(Path(folder) / "completions" / script, share / place)


def glibc_tag():
    """Returns the platform tag for the glibc of the program; maturin only inspects the module, which may need less."""
    [program] = (DATA / "scripts").iterdir()
    wanted = re.findall(rb"GLIBC_2\.(\d+)", program.read_bytes())
    if not wanted or sys.platform != "linux":
        return []
    return ["--compatibility", f"manylinux_2_{max(map(int, wanted))}"]


if __name__ == "__main__":
    folder, *options = sys.argv[1:]
    os.environ["TOPICMILL_WHEEL_OPTIONS"] = " ".join(options or ["--profile", "release"])
    target = Path(folder).resolve()
    target.mkdir(parents=True, exist_ok=True)
    # pip also runs in this folder.
    os.chdir(PYTHON)
    print(target / build_wheel(str(target)))
