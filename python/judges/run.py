"""Runs the parts of the tests of lmdb and plyvel that apply, over adapters of ours.

python run.py [lmdb] [plyvel]

The tests come from the source distributions on the package registry, at these versions; nothing of them is
kept. Without the registry it says so and ends. `excluded.py` lists what does not apply, each with the reason.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

SECONDS = 240
HERE = Path(__file__).parent
JUDGES = {
    "lmdb": ("3.0.0", "tests", ["cursor", "iteration", "getmulti", "txn", "crash", "parity", "env_test"]),
    "plyvel": ("1.5.1", "test", ["plyvel"]),
}


def fetch(name: str, version: str, folder: str, place: Path) -> Path | None:
    """Fetches the tests of a package; None if the registry cannot be reached."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
    command += ["--no-binary", ":all:", "--dest", str(place), f"{name}=={version}"]
    try:
        done = subprocess.run(command, timeout=120, capture_output=True, text=True)
    except subprocess.TimeoutExpired:
        return None
    archive = place / f"{name}-{version}.tar.gz"
    if not archive.exists():
        print(done.stderr.strip()[-500:])
        return None
    tests = place / name
    tests.mkdir()
    with tarfile.open(archive) as package:
        for member in package.getmembers():
            path = Path(member.name)
            if member.isfile() and path.parent.name == folder and path.suffix == ".py" and path.stem != "__init__":
                content = package.extractfile(member)
                assert content is not None
                (tests / path.name).write_bytes(content.read())
    return tests


def judge(name: str, place: Path) -> bool:
    """Runs the tests of one package. Returns whether none failed."""
    version, folder, modules = JUDGES[name]
    tests = fetch(name, version, folder, place)
    if tests is None:
        print(f"skipped: the tests of {name} {version}, because the registry cannot be reached")
        if listed := os.environ.get("QUENCH_SKIPPED"):
            with open(listed, "a") as file:
                file.write(f"the tests of {name} (no registry)\n")
        return True
    files = [next(tests.glob(f"*{module}*.py")) for module in modules]
    paths = [str(HERE / "adapters"), str(HERE), str(tests), *sys.path[1:]]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "QUENCH_JUDGE": name}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "plugin", "--rootdir", str(tests)]
    print(f"--- tests of {name} {version}", flush=True)
    # A test that hangs says where, before its time is over.
    command += ["-o", "faulthandler_timeout=60", *map(str, files)]
    try:
        return subprocess.run(command, env=environment, cwd=tests, timeout=SECONDS).returncode == 0
    except subprocess.TimeoutExpired:
        print(f"the tests of {name} took more than {SECONDS} s")
        return False


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*", default=list(JUDGES))
    with tempfile.TemporaryDirectory() as place:
        failed = [name for name in parser.parse_args().names if not judge(name, Path(place))]
    if failed:
        sys.exit(f"failed: the tests of {', '.join(failed)}")


if __name__ == "__main__":
    main()
