"""scipy is an extra: without it the merge path works, and an analysis says what to install."""

from __future__ import annotations

import importlib
import re

import pytest

from trajsoup.core import numerics
from trajsoup.errors import TrajsoupError, install


def test_without_scipy_an_analysis_names_the_extra(monkeypatch):
    def missing(name):
        raise ImportError(name)

    monkeypatch.setattr(importlib, "import_module", missing)
    with pytest.raises(TrajsoupError, match=r"needs scipy.*" + re.escape(install("analysis"))):
        numerics.t_quantile(0.975, degrees=3)


def test_students_quantile_is_the_tables():
    assert numerics.t_quantile(0.975, degrees=1) == pytest.approx(12.706, abs=1e-3)
    assert numerics.t_quantile(0.975, degrees=10) == pytest.approx(2.228, abs=1e-3)
