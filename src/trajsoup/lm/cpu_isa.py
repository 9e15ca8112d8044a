"""Find the CPU instructions that torch may use without dying.

On some machines the processor announces instructions that the system does not allow, and a bf16 matrix product (Muon's
Newton-Schulz iteration is one) ends the process with SIGILL. That cannot be caught, so it is tried in a process of its own.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

from trajsoup.errors import OutputError, TrainError
from trajsoup.store.json_file import read_json
from trajsoup.store.publish import write_atomic

VARIABLE = "ONEDNN_MAX_CPU_ISA"
LIMITS = (None, "AVX512_CORE_BF16", "AVX512_CORE", "AVX2")  # None: no limit, torch chooses
PROBE = (
    "import torch; a = torch.ones(64, 64, dtype=torch.bfloat16); b = torch.ones(8, 64, 64, dtype=torch.bfloat16); "
    "assert (a @ a)[0, 0] == 64 and torch.baddbmm(b, b, b)[0, 0, 0] == 65"
)


def isa_environment(*, cache: Path) -> dict[str, str]:
    """Return the environment that a process needs before it loads torch: often empty. Asked once for each machine."""
    if VARIABLE in os.environ:
        return {VARIABLE: os.environ[VARIABLE]}
    key = machine()
    record = cache / "cpu-isa.json"
    known: dict[str, str | None] = {}
    with contextlib.suppress(OutputError):  # a memory, nothing more
        known = read_json(record, dict[str, str | None], cure="remove it", error=OutputError)
    if key not in known:
        known[key] = _first_that_works()
        with contextlib.suppress(OutputError):  # a cache that cannot be written costs a second each time, no more
            write_atomic(record, json.dumps(known, indent=1))
    limit = known[key]
    return {} if limit is None else {VARIABLE: limit}


def machine() -> str:
    """What measurements hold for: this machine, its processor, this torch."""
    return f"{platform.node()} {_processor()} torch {version('torch')}"


def _first_that_works() -> str | None:
    for limit in LIMITS:
        environment = {**os.environ, **({VARIABLE: limit} if limit else {}), "OMP_NUM_THREADS": "1"}
        if subprocess.run([sys.executable, "-c", PROBE], env=environment, capture_output=True).returncode == 0:
            return limit
    raise TrainError(
        f"torch cannot multiply bf16 matrices on this machine with any limit of {VARIABLE}: check that `import torch` works"
    )


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.machine())
