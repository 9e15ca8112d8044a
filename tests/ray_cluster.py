"""Ray on loopback for tests: no dashboard, no usage statistics, no token in the home folder."""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path

import pytest

os.environ["RAY_AUTH_MODE"] = "disabled"  # loopback only
os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
os.environ["RAY_worker_niceness"] = "0"  # noqa: SIM112  # tests are not to wait for everything else on the machine
os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"  # its name aside: addresses stay on loopback
os.environ["RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO"] = "0"
ROOT = Path(__file__).parents[1]


def worker_environment() -> dict[str, str]:
    path = os.pathsep.join([str(ROOT / "src"), str(ROOT), *(p for p in sys.path if p)])
    return {"PYTHONPATH": path, "OMP_NUM_THREADS": "1"}


@contextlib.contextmanager
def ray_for_tests(*, workers: int = 2):
    pytest.importorskip("ray", reason="needs the extra [ray]")
    from trajsoup.engine.ray_executor import ray_executor

    with ray_executor(workers=workers, environment=worker_environment()) as executor:
        yield executor


NODE = {"object_store_memory": 80 << 20, "node_ip_address": "127.0.0.1"}


@contextlib.contextmanager
def loopback_cluster(*, nodes: int = 2):
    """A head that runs nothing, and nodes of one CPU each; yields the cluster and its nodes. Nobody has joined it."""
    pytest.importorskip("ray", reason="needs the extra [ray]")
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False, **NODE})
    try:
        yield cluster, [cluster.add_node(num_cpus=1, **NODE) for _ in range(nodes)]
    finally:
        cluster.shutdown()


@contextlib.contextmanager
def cluster_for_tests(*, nodes: int = 2):
    """The same, joined: yields the executor, the cluster and its nodes."""
    from trajsoup.engine.ray_executor import ray_executor

    with (
        loopback_cluster(nodes=nodes) as (cluster, members),
        ray_executor(address=cluster.address, environment=worker_environment()) as executor,
    ):
        yield executor, cluster, members
