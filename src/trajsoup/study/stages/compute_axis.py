"""What stands behind the compute axis: the "Completion fields" of fig:trajectory-soup-compute-allocation (app:geometry)."""

from __future__ import annotations

from trajsoup.core.completion import ScalingFields
from trajsoup.core.signal import Signal
from trajsoup.study.records.files import Records
from trajsoup.study.records.frontier import FrontierRecord
from trajsoup.study.records.sweeps import sweep_of


def compute_fields(records: Records) -> ScalingFields | None:
    """(N, t, K) of every plotted merge, cheapest first, and the points of each fit; None where no frontier was measured."""
    frontier: FrontierRecord | None = records.read(FrontierRecord)
    if frontier is None:
        return None
    sweep = sweep_of(records, "frontier")
    points = [] if sweep is None else [p for p in sweep.points if p.k is not None]
    order = sorted(points, key=lambda p: (p.budget_tokens, p.n_branches))
    return ScalingFields(
        soups=tuple((p.n_branches, p.horizon, p.k) for p in order if p.horizon is not None and p.k is not None),
        fitted_points={law.series: len(law.points) for law in frontier.laws if law.signal is Signal.LOSS},
        fit_windows={law.series: law.window for law in frontier.laws if law.signal is Signal.LOSS},
    )
