"""Hints name a command that works where this package came from."""

import json
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest

from trajsoup import errors
from trajsoup.errors import install


class Origin:
    def __init__(self, text):
        self.text = text

    def read_text(self, name):
        assert name == "direct_url.json"
        return self.text


@pytest.mark.parametrize(
    ("origin", "source"),
    [
        (json.dumps({"url": "file:///home/me/clone", "dir_info": {}}), "/home/me/clone"),
        (json.dumps({"url": "file:///home/me/my%20clone", "dir_info": {}}), "/home/me/my clone"),
        (json.dumps({"url": "https://example.org/x.whl"}), "trajectory-soup"),
        (None, "trajectory-soup"),
    ],
)
def test_an_extra_comes_from_the_clone_or_from_the_index(monkeypatch, origin, source):
    monkeypatch.setattr("importlib.metadata.distribution", lambda name: Origin(origin))
    assert install("train") == f"pip install '{source}[train]'"


def test_a_package_that_was_never_installed_names_its_clone_or_the_index(monkeypatch):
    def missing(name):
        raise PackageNotFoundError(name)

    monkeypatch.setattr("importlib.metadata.distribution", missing)
    clone = Path(errors.__file__).parents[2]
    assert install("ray") == f"pip install '{clone}[ray]'"
    monkeypatch.setattr(errors, "__file__", "/opt/packages/lib/trajsoup/errors.py")
    assert install("ray") == "pip install 'trajectory-soup[ray]'"
