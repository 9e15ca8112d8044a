"""The `connectivity` field of a study file: which paths between models are measured, and which are trained."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

from trajsoup.core.quantity import Positive, Tokens, parse_tokens
from trajsoup.errors import StudyError


def parse_depths(value: Any, *, where: object) -> tuple[int, ...]:
    """Read one depth or several, in order; 0 is the fork point itself."""
    listed = value if isinstance(value, list) else [value]
    return tuple(sorted({0 if depth == 0 else parse_tokens(depth, where=where) for depth in listed}))


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectivityPlan:
    """Straight segments between the anchors of all pairs; deeper fork points and curves where they are asked for."""

    depths: Annotated[
        tuple[int, ...],
        parse_depths,
        "Positions along the baseline from which two copies are trained that differ in their data order alone; 0 is the "
        "fork point. Default: none.",
    ] = ()
    depth_tokens: Annotated[Tokens | None, "Tokens that each copy trains. Default: what is left to the horizon."] = None
    curves: Annotated[int, "Pairs of anchors that are joined by trained curves. Default: none."] = 0
    curve_tokens: Annotated[Tokens, "Tokens that a curve's bend learns from."] = 200_000
    curve_lr: Annotated[Positive, "Of Adam, with linear decay to 0."] = 1e-3

    def require_saved(self, *, every: int, horizon: int) -> None:
        """Refuse a depth where the baseline saves nothing, or from which nothing is left to train."""
        for depth in self.depths:
            if depth % every or depth > horizon or (depth == horizon and self.depth_tokens is None):
                raise StudyError(
                    f"connectivity.depths has {depth:,}: use multiples of checkpoint_every ({every:,}), which are saved, "
                    f"below the horizon of {horizon:,}"
                )
