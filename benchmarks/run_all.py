"""Run the benchmarks one after another and keep what each printed, dated, in benchmarks/results.

    python benchmarks/run_all.py [NAME ...] [--peer .venv-mergekit/bin/mergekit-yaml]

Each runs with its own defaults; for other sizes call the script itself. blend and growth write their results on their own.
"""

from __future__ import annotations

import argparse
import datetime
import os
import platform
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
DATA = HERE / ".data"
WRITE_THEMSELVES = ("blend", "growth")
NAMES = (*WRITE_THEMSELVES, "sweep", "formats", "gram", "train", "score", "report", "cluster", "watch")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(NAMES)}; default: all")
    parser.add_argument("--peer", type=Path, help="mergekit-yaml of its own environment, for blend")
    args = parser.parse_args()
    if unknown := sorted(set(args.names) - set(NAMES)):
        parser.error(f"there is no benchmark {unknown[0]!r}: choose from {', '.join(NAMES)}")
    DATA.mkdir(exist_ok=True)
    failed = []
    for name in args.names or NAMES:
        options = ["--peer", str(args.peer.absolute())] if name == "blend" and args.peer else []
        print(f"== {name}", flush=True)
        if not _run(name, options):
            failed.append(name)
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")


def _run(name: str, options: list[str]) -> bool:
    """Run one script, show its lines as they come, and write them down."""
    load = os.getloadavg()[0]
    command = [sys.executable, str(HERE / f"{name}.py"), *options]
    with subprocess.Popen(command, cwd=HERE.parent, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        lines = []
        for line in process.stdout:
            print(line, end="", flush=True)
            lines.append(line)
    if process.returncode == 0 and name not in WRITE_THEMSELVES:
        _write(name, "".join(lines).strip(), load=load)
    return process.returncode == 0


def _write(name: str, printed: str, *, load: float) -> None:
    today = datetime.date.today().isoformat()
    machine = f"{os.cpu_count()} cores, {platform.system()} {platform.release()}, Python {platform.python_version()}"
    head = (
        f"# {name.capitalize()}, {today}\n\n`python benchmarks/{name}.py` on {machine}, load {load:.1f} at its start.\n"
    )
    results = HERE / "results"
    results.mkdir(exist_ok=True)
    (results / f"{today}-{name}.md").write_text(f"{head}\n```text\n{printed}\n```\n", encoding="utf-8")


if __name__ == "__main__":
    main()
