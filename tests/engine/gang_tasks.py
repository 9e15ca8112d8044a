"""Tasks of several nodes: members that meet over a socket, and one that dies once."""

from __future__ import annotations

import os
import signal
import socket
import time

from tests.engine.tasks import first_time
from trajsoup.errors import CheckpointError


def meet(item, member):
    """Rank 0 hears from every other rank on the port it was given; returns who came and on which nodes they were."""
    import ray

    node = ray.get_runtime_context().get_node_id()
    if member.rank == 0:
        with socket.create_server((member.address, member.port)) as server:
            heard = [_hear(server) for _ in range(member.nodes - 1)]
        return item, sorted([f"0 {node}", *heard])
    deadline = time.monotonic() + 60
    while True:
        try:
            with socket.create_connection((member.address, member.port), timeout=5) as connection:
                connection.sendall(f"{member.rank} {node}".encode())
                return None
        except OSError:
            assert time.monotonic() < deadline, "rank 0 never listened"
            time.sleep(0.1)


def lose_a_member_once(item, member):
    """Rank 1 dies in the first attempt, and rank 0 would wait for it for ever."""
    mark = item
    if member.rank == 1 and first_time(mark):
        os.kill(os.getpid(), signal.SIGKILL)
    if member.rank == 0 and first_time(f"{mark}-waited"):
        time.sleep(600)
    return member.rank


def damaged(item, member):
    if member.rank == 0:
        raise CheckpointError("checkpoint 7 is damaged: copy it again")
    time.sleep(600)


def _hear(server):
    connection, _ = server.accept()
    with connection:
        return connection.recv(1000).decode()
