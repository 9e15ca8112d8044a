"""Methods of others that train: one file each, and one table of them. Fields of the study file have the same names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from trajsoup.study.neighbours.branch_train_merge import branch_train_merge
from trajsoup.study.neighbours.branch_train_mix import branch_train_mix
from trajsoup.study.neighbours.diloco import diloco
from trajsoup.study.neighbours.lab import Contender, Lab
from trajsoup.study.neighbours.wsd import wsd

TRAINED: dict[str, Callable[[Lab, Any], tuple[Contender, ...]]] = {
    "diloco": diloco,
    "wsd": wsd,
    "branch_train_merge": branch_train_merge,
    "branch_train_mix": branch_train_mix,
}
