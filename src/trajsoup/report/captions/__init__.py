"""Captions that say what to see in this study, computed from its numbers. Plain text: the page escapes it.

Every function takes what its figure takes. A caption never says more than the numbers do: where a difference lies
inside noise it says so, and where there is too little to see it says that.
"""

from trajsoup.report.captions.ablations import ablation
from trajsoup.report.captions.branches import screen, training
from trajsoup.report.captions.curves import categories, over_tokens, saturation
from trajsoup.report.captions.geometry import cosines, direction_gain, interpolation, plane
from trajsoup.report.captions.results import differences, score_table
from trajsoup.report.captions.scaling import costs, frontier, merge_size, predicted, surface

__all__ = [
    "ablation",
    "categories",
    "cosines",
    "costs",
    "differences",
    "direction_gain",
    "frontier",
    "interpolation",
    "merge_size",
    "over_tokens",
    "plane",
    "predicted",
    "saturation",
    "score_table",
    "screen",
    "surface",
    "training",
]
