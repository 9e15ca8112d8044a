"""slurmctld, slurmd and munged on loopback, in a folder of the test's own, ended by their handles."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

CONF = """\
ClusterName=soup
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ctl}
SlurmdPort={d}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/ctl.pid
SlurmdPidFile={folder}/d.pid
SlurmctldLogFile={folder}/ctl.log
SlurmdLogFile={folder}/d.log
ProctrackType=proctrack/pgid
TaskPlugin=task/none
SelectType=select/cons_tres
ReturnToService=2
SchedulerParameters=sched_interval=1,batch_sched_delay=0
MpiDefault=none
NodeName={host} NodeAddr=127.0.0.1 CPUs={cpus} State=UNKNOWN
PartitionName=all Nodes={host} Default=YES MaxTime=INFINITE State=UP
"""


@dataclass(frozen=True)
class Slurm:
    environment: dict[str, str]

    def run(self, *words: str) -> str:
        done = subprocess.run(words, env=self.environment, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def wait_until_idle(self, seconds: float = 120) -> None:
        deadline = time.monotonic() + seconds
        while self.run("squeue", "-h"):
            assert time.monotonic() < deadline, self.run("squeue")
            time.sleep(0.5)


@contextlib.contextmanager
def slurm_for_tests(folder: Path):
    programs = ["slurmctld", "slurmd", "munged", "sbatch"]
    path = os.environ["PATH"] + ":/usr/sbin"
    found = {name: shutil.which(name, path=path) for name in programs}
    if missing := [name for name, where in found.items() if where is None]:
        pytest.skip(f"needs {', '.join(missing)} (Debian: slurmctld slurmd slurm-client munge)")
    if os.geteuid() != 0:
        pytest.skip("slurmd must run as root to start jobs")
    folder.mkdir(parents=True)
    (folder / "munge.key").write_bytes(os.urandom(1024))
    (folder / "munge.key").chmod(0o600)
    host = socket.gethostname().split(".")[0]
    ports = [_free_port(), _free_port()]
    conf = folder / "slurm.conf"
    conf.write_text(CONF.format(host=host, folder=folder, ctl=ports[0], d=ports[1], cpus=os.cpu_count()))
    environment = {**os.environ, "PATH": path, "SLURM_CONF": str(conf)}
    munge = [found["munged"], "--foreground", "--force", f"--socket={folder}/munge.socket"]
    munge += [f"--key-file={folder}/munge.key", f"--log-file={folder}/munge.log", f"--pid-file={folder}/munge.pid"]
    munge += [f"--seed-file={folder}/munge.seed"]
    commands = [munge, [found["slurmctld"], "-D", "-c"], [found["slurmd"], "-D", "-N", host]]
    with contextlib.ExitStack() as stack:
        for command in commands:
            process = subprocess.Popen(
                command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
            )
            stack.callback(_end, process)
            time.sleep(1)
        deadline = time.monotonic() + 40
        while subprocess.run(
            ["sinfo", "-h", "-o", "%t"], env=environment, capture_output=True, text=True
        ).stdout.strip() not in ("idle", "idle*"):
            if time.monotonic() > deadline:
                logs = "; ".join(
                    (folder / f"{n}.log").read_text()[-300:] for n in ("ctl", "d") if (folder / f"{n}.log").exists()
                )
                pytest.skip(f"slurm does not start here: {logs}")
            time.sleep(0.5)
        yield Slurm(environment)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
