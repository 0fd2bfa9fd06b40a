"""Fails if `import quenchdb` takes longer than so many milliseconds, beyond an empty program."""

from __future__ import annotations

import subprocess
import sys
import time

RUNS = 11


def best(code: str) -> float:
    """Returns the shortest time of a program, in milliseconds."""
    times = []
    for _ in range(RUNS):
        begun = time.perf_counter()
        subprocess.run([sys.executable, "-c", code], check=True)
        times.append(time.perf_counter() - begun)
    return min(times) * 1e3


def main() -> None:
    most = float(sys.argv[1])
    took = best("import quenchdb") - best("")
    print(f"import quenchdb: {took:.1f} ms")
    if took > most:
        sys.exit(f"the import takes more than {most:g} ms")


main()
