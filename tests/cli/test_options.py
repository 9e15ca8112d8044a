import os

import pytest

from trajsoup.cli.options import limited_instructions
from trajsoup.lm import cpu_isa
from trajsoup.lm.cpu_isa import VARIABLE


@pytest.fixture(autouse=True)
def a_machine_with_a_limit(monkeypatch):
    monkeypatch.setattr(cpu_isa, "isa_environment", lambda *, cache: {VARIABLE: os.environ.get(VARIABLE, "AVX2")})
    for name in (VARIABLE, "HF_HUB_OFFLINE", "TRANSFORMERS_VERBOSITY"):
        monkeypatch.delenv(name, raising=False)


def test_the_limit_holds_inside_and_is_gone_afterwards_even_after_an_error():
    before = dict(os.environ)
    with limited_instructions():
        assert (os.environ[VARIABLE], os.environ["HF_HUB_OFFLINE"]) == ("AVX2", "1")
    assert dict(os.environ) == before
    with pytest.raises(KeyboardInterrupt), limited_instructions():
        raise KeyboardInterrupt
    assert dict(os.environ) == before


def test_what_the_user_set_stays_inside_and_afterwards(monkeypatch):
    monkeypatch.setenv(VARIABLE, "AVX512_CORE")
    monkeypatch.setenv("HF_HUB_OFFLINE", "0")
    with limited_instructions():
        assert (os.environ[VARIABLE], os.environ["HF_HUB_OFFLINE"]) == ("AVX512_CORE", "0")
    assert (os.environ[VARIABLE], os.environ["HF_HUB_OFFLINE"]) == ("AVX512_CORE", "0")
