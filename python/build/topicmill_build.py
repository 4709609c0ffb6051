"""Builds the wheel: maturin does, after the program and the default model were laid where it takes them from.

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

# maturin wants the folder also where it only asks for metadata, or builds for the place where the sources lie.
DATA.mkdir(exist_ok=True)


def build_wheel(folder, config_settings=None, metadata_directory=None):
    """What pip calls."""
    options = os.environ.get("TOPICMILL_WHEEL_OPTIONS", "--profile release").split()
    lay_ready(options)
    os.environ["MATURIN_PEP517_ARGS"] = " ".join(["--locked", *options, *of_glibc()])
    return maturin.build_wheel(folder, config_settings, metadata_directory)


def lay_ready(options):
    """Builds the program, and copies it and the model to where maturin takes them from."""
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
    lay_pages(program)


def lay_pages(program):
    """Has the program write its man pages and completion scripts where shells look below an environment's prefix."""
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


def of_glibc():
    """The platform's tag for what the program needs: maturin looks at the module alone, which may need less."""
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
    # As pip does, so that both find the same files.
    os.chdir(PYTHON)
    print(target / build_wheel(str(target)))
