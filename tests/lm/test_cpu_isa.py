import json

import pytest

from trajsoup.errors import TrainError
from trajsoup.lm import cpu_isa
from trajsoup.lm.cpu_isa import VARIABLE, isa_environment


class Probe:
    """Stands for the process that multiplies matrices: dies unless the limit is one of those that work."""

    def __init__(self, *works):
        self.works, self.asked = works, []

    def __call__(self, command, *, env, capture_output):
        self.asked.append(env.get(VARIABLE))
        self.returncode = 0 if env.get(VARIABLE) in self.works else -4
        return self


@pytest.fixture(autouse=True)
def no_limit_yet(monkeypatch):
    monkeypatch.delenv(VARIABLE, raising=False)


def test_a_healthy_machine_needs_no_limit(monkeypatch, tmp_path):
    monkeypatch.setattr(cpu_isa.subprocess, "run", Probe(None))
    assert isa_environment(cache=tmp_path) == {}


def test_the_highest_limit_that_does_not_die_is_chosen_and_remembered(monkeypatch, tmp_path):
    probe = Probe("AVX512_CORE_BF16", "AVX2")
    monkeypatch.setattr(cpu_isa.subprocess, "run", probe)
    assert isa_environment(cache=tmp_path) == {VARIABLE: "AVX512_CORE_BF16"}
    assert isa_environment(cache=tmp_path) == {VARIABLE: "AVX512_CORE_BF16"}
    assert probe.asked == [None, "AVX512_CORE_BF16"]
    assert list(json.loads((tmp_path / "cpu-isa.json").read_text()).values()) == ["AVX512_CORE_BF16"]


def test_what_the_user_set_is_kept_without_a_probe(monkeypatch, tmp_path):
    monkeypatch.setenv(VARIABLE, "AVX2")
    monkeypatch.setattr(cpu_isa.subprocess, "run", None)
    assert isa_environment(cache=tmp_path) == {VARIABLE: "AVX2"}


def test_a_machine_where_nothing_works_is_refused(monkeypatch, tmp_path):
    monkeypatch.setattr(cpu_isa.subprocess, "run", Probe())
    with pytest.raises(TrainError, match="cannot multiply bf16"):
        isa_environment(cache=tmp_path)


@pytest.mark.slow
def test_the_real_probe_finds_something_that_works(tmp_path):
    import os
    import subprocess
    import sys

    found = isa_environment(cache=tmp_path)
    assert subprocess.run([sys.executable, "-c", cpu_isa.PROBE], env={**os.environ, **found}).returncode == 0
