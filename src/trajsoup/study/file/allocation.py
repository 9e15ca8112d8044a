"""The field `allocation` of a study file: how tokens are given to branches while they train."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

from trajsoup.core.adaptive import Policy
from trajsoup.core.quantity import Count, Positive, Share, Tokens
from trajsoup.errors import StudyError

ADAPTIVE = "adaptive"


@dataclass(frozen=True, slots=True, kw_only=True)
class Adaptive:
    """Branches are opened, extended and stopped as their losses tell. In the file: `adaptive`, or these fields."""

    tokens: Annotated[
        Tokens | None, "Budget of all branches together. Default: the horizon, which is the longest a branch may run."
    ] = None
    looks: Annotated[Count, "Positions of the horizon at which there is a decision."] = 8
    start: Annotated[Count, "Branches to begin with, in the order of the file, the baseline first."] = Policy().start
    sure: Annotated[Share, "A branch is opened where that gains more than length in more than this share of draws."] = (
        Policy().sure
    )
    lean: Annotated[Positive, "Times what length is taken to gain: above 1 leans towards long runs."] = Policy().lean
    drop: Annotated[
        Share,
        "Share of draws in which the soup must be better without a branch, at two looks, or where nothing can go on.",
    ] = Policy().drop
    shorten: Annotated[
        Share, "Share of draws in which fewer and longer branches must be better before one is stopped; 1: never."
    ] = 0.9

    @staticmethod
    def spelled_out(value: Any) -> Any:
        """The word alone asks for the defaults."""
        if isinstance(value, str):
            if value != ADAPTIVE:
                raise StudyError(f"allocation is {value!r}: use {ADAPTIVE}, or `{{tokens: ..., looks: ...}}`")
            return {}
        return value

    @property
    def policy(self) -> Policy:
        """How decisions are made."""
        shorten = None if self.shorten >= 1 else self.shorten
        return Policy(start=self.start, sure=self.sure, lean=self.lean, drop=self.drop, shorten=shorten)
