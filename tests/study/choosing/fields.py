"""A field that numpy did not make: four branches, one of them rejected."""

from trajsoup.core.methods.asking import Descend, Score
from trajsoup.core.pool import Candidate, Pool
from trajsoup.study.choosing.field import Field

EVERY = 100


def pool(branch, count=12, offset=0.0):
    return Pool(
        branch=branch,
        candidates=tuple(
            Candidate(key=f"{branch}/{i}", branch=branch, tokens=EVERY * i, val_loss=2 + offset + 1 / i)
            for i in range(1, count + 1)
        ),
    )


def field_of(*pools, admitted):
    return Field(pools=pools, admitted=admitted, baseline="EXP1", ks=(1, 2, 4), n_horizons=4)


def four_branches():
    pools = (pool("EXP1"), pool("EXP2", offset=0.1), pool("EXP3", offset=0.2), pool("BAD", offset=1.0))
    return field_of(*pools, admitted=("EXP1", "EXP2", "EXP3"))


def options(entry):
    """What an entry's method may choose: the rows of its first question, or the one that is prescribed."""
    asking = entry.ask()
    try:
        first = next(asking)
    except StopIteration as end:
        return (end.value.option,)
    if isinstance(first, Score):
        return first.options
    return (first.option,) if isinstance(first, Descend) else ()  # before its products are known, a method has no row
