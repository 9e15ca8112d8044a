"""Model Soup: the final checkpoints (eq:model-soup)."""

from __future__ import annotations

from trajsoup.core.methods.asking import Asking, best_of
from trajsoup.core.methods.freedom import Freedom
from trajsoup.core.methods.table import Scope, method


@method(name="model-soup", label="Model Soup", reference="eq:model-soup", scope=Scope.SEVERAL, select="final")
def model_soup(freedom: Freedom) -> Asking:
    """The final checkpoint of each branch, averaged."""
    return best_of(freedom.options("final"), rank_by=freedom.rank_by, free=freedom.free)
