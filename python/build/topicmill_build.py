"""Builds the wheel with maturin, after copying the program and the default model to its data folder.

pip calls `build_wheel`, for the machine that it runs on. `make wheel` runs this file, which builds the wheel for
releases: small, the same bytes from the same sources, and on Linux for an old C library, with zig as C compiler and
linker:

    python build/topicmill_build.py FOLDER
"""

import json
import os
import platform
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

# The oldest C library on which the wheel runs: that of Debian 10, RHEL 8 and their derivatives.
GLIBC = "2.28"
TAG = f"manylinux_{GLIBC.replace('.', '_')}"

# maturin requires the folder even for metadata and editable builds.
DATA.mkdir(exist_ok=True)


def build_wheel(folder, config_settings=None, metadata_directory=None):
    """Builds the wheel; the entry point for pip."""
    stage_data(["cargo", "build"], ["--profile", "release"])
    os.environ["MATURIN_PEP517_ARGS"] = "--locked --profile release"
    return maturin.build_wheel(folder, config_settings, metadata_directory)


def build_release(folder):
    """Builds the wheel for releases, and returns its path."""
    reproducible_environment()
    program, module = ["cargo", "build"], ["--compression-level", "9"]
    options = ["--profile", "wheel"]
    if sys.platform == "linux":
        target = f"{platform.machine()}-unknown-linux-gnu"
        program = ["cargo-zigbuild", "zigbuild", "--target", f"{target}.{GLIBC}"]
        module += ["--zig", "--target", target, "--compatibility", TAG]
    stage_data(program, options)
    os.environ["MATURIN_PEP517_ARGS"] = " ".join(["--locked", *options, *module])
    wheel = folder / maturin.build_wheel(str(folder))
    if sys.platform == "linux":
        check_tag(wheel)
    return wheel


def reproducible_environment():
    """Keeps the folders of this machine and the time of the build out of the wheel."""
    cargo_home = os.environ.get("CARGO_HOME", Path.home() / ".cargo")
    folders = {REPOSITORY: "topicmill", cargo_home: "cargo"}
    remapped = [f"--remap-path-prefix={folder}=/{name}" for folder, name in folders.items()]
    os.environ["CARGO_ENCODED_RUSTFLAGS"] = "\x1f".join(remapped)
    # The earliest time that a zip archive can hold.
    os.environ.setdefault("SOURCE_DATE_EPOCH", "315532800")


def check_tag(wheel):
    """Fails if the program or the module needs a newer C library than the wheel's tag says."""
    command = [sys.executable, "-m", "auditwheel", "show", str(wheel)]
    shown = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    if f'"{TAG}_' not in shown:
        sys.exit(shown)


def stage_data(build, options):
    """Builds the program, and copies it and the default model to the data folder."""
    shutil.rmtree(DATA, ignore_errors=True)
    shutil.copytree(
        REPOSITORY / MODEL,
        DATA / "data/share/topicmill" / MODEL,
        ignore=shutil.ignore_patterns(".*"),
    )
    command = [*build, "--locked", "--package", "topicmill", "--bin", "topicmill", *options]
    command += ["--message-format", "json-render-diagnostics"]
    built = subprocess.run(command, cwd=REPOSITORY, check=True, stdout=subprocess.PIPE)
    messages = map(json.loads, built.stdout.splitlines())
    [program] = filter(None, (message.get("executable") for message in messages))
    (DATA / "scripts").mkdir()
    shutil.copy2(program, DATA / "scripts")
    stage_completions(program)


def stage_completions(program):
    """Writes completion scripts to the folders that shells search in an environment."""
    for shell, place in [
        ("bash", "bash-completion/completions/topicmill"),
        ("zsh", "zsh/site-functions/_topicmill"),
        ("fish", "fish/vendor_completions.d/topicmill.fish"),
    ]:
        path = DATA / "data/share" / place
        path.parent.mkdir(parents=True)
        with path.open("wb") as script:
            subprocess.run([program, "completions", shell], check=True, stdout=script)


if __name__ == "__main__":
    [folder] = sys.argv[1:]
    target = Path(folder).resolve()
    target.mkdir(parents=True, exist_ok=True)
    # pip also runs in this folder.
    os.chdir(PYTHON)
    print(build_release(target))
