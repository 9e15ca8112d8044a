"""A cluster that is started here keeps to itself: loopback, a token in memory, no dashboard, no statistics."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import tests.ray_cluster  # noqa: F401  # its settings count only if they are there before ray is imported
import trajsoup

SCRIPT = """
import json, os
from trajsoup.engine.ray_executor import ray_executor
with ray_executor(workers=1) as executor:
    assert executor.map(lambda text: len(text), ["abc"]) == [3]
    import ray
    from ray._common.usage import usage_lib
    node = ray._private.worker._global_node
    print(json.dumps({
        "mode": os.environ["RAY_AUTH_MODE"], "token": len(os.environ["RAY_AUTH_TOKEN"]),
        "dashboard": node.webui_url, "statistics": usage_lib.usage_stats_enabled(), "address": node.node_ip_address,
        "before": before,
    }))
"""


def test_a_local_cluster_writes_no_token_and_opens_no_dashboard(tmp_path):
    pytest.importorskip("ray", reason="needs the extra [ray]")
    kept = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    environment = {**kept, "HOME": str(tmp_path), "PYTHONPATH": str(Path(trajsoup.__file__).parents[1])}
    script = "import os\nbefore = [n for n in os.environ if n.startswith('RAY_')]\n" + SCRIPT
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, timeout=250)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["before"] == []  # nothing was set for it: it is our doing
    assert found["mode"] == "token"
    assert found["token"] == 64
    assert not found["dashboard"]
    assert found["statistics"] is False
    assert found["address"] == "127.0.0.1"
    assert [p for p in tmp_path.rglob("*") if "token" in p.name or p.name == ".ray"] == []


def test_an_address_that_is_none_is_refused_by_name():
    pytest.importorskip("ray", reason="needs the extra [ray]")
    from trajsoup.engine.ray_executor import ray_executor
    from trajsoup.errors import ExecutorError

    with (
        pytest.raises(ExecutorError, match="Ray cluster at nowhere cannot be reached"),
        ray_executor(address="nowhere"),
    ):
        pass
