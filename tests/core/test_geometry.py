"""Geometry from the Gram matrix against the same quantities computed from the vectors themselves."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from trajsoup.core.geometry import alignment, cosines, direction, displacements, distances, project, random_walk_share
from trajsoup.core.gram import WHOLE, Gram, Nonfinite, Products, combined
from trajsoup.core.soup import Row
from trajsoup.errors import GeometryError


def gram_of(x: np.ndarray, *, centre: int = 0, nonfinite: tuple[Nonfinite, ...] = ()) -> Gram:
    d = x - x[centre]
    products = Products(
        inner=d @ d.T, along_centre=d @ x[centre], centre_square=float(x[centre] @ x[centre]), elements=x.shape[1]
    )
    keys = tuple(f"c{i}" for i in range(len(x)))
    return Gram(keys=keys, centre=keys[centre], groups={WHOLE: products}, nonfinite=nonfinite)


def row(name: str, *weights: float) -> Row:
    return Row(name=name, weights={f"c{i}": w for i, w in enumerate(weights) if w})


def only(i: int) -> Row:
    return Row(name=f"c{i}", weights={f"c{i}": 1.0})


@pytest.fixture
def x() -> np.ndarray:
    rng = np.random.default_rng(0)
    return rng.standard_normal(50) + 0.1 * rng.standard_normal((6, 50))


def test_distances_and_cosines_are_those_of_the_vectors(x):
    gram, d = gram_of(x), x - x[0]
    assert np.allclose(distances(gram), np.linalg.norm(x[:, None] - x[None], axis=2), atol=1e-12)
    assert np.allclose(displacements(gram), np.linalg.norm(d, axis=1))
    unit = d[1:] / np.linalg.norm(d[1:], axis=1, keepdims=True)
    assert np.allclose(cosines(gram)[1:, 1:], unit @ unit.T)


def test_a_soup_is_a_checkpoint_like_any_other(x):
    rows = [row("mean", 0, 0.5, 0.5), row("beyond", -0.5, 0, 0, 1.5), row("fork", 1), row("half", 0, 0.25, 0.25)]
    w = np.array([[r.weights.get(f"c{i}", 0.0) for i in range(6)] for r in rows])
    soups = combined(gram_of(x), rows)
    s = w @ x
    assert soups.keys == ("mean", "beyond", "fork", "half")
    assert np.allclose(distances(soups), np.linalg.norm(s[:, None] - s[None], axis=2), atol=1e-7)
    assert np.allclose(soups.whole.raw(), s @ s.T)


def test_a_soup_by_group_of_tensors_is_one_too(x):
    parts = {"layer 0": slice(0, 20), "other": slice(20, 50)}
    grams = {name: gram_of(x[:, part]).whole for name, part in parts.items()}
    gram = replace(gram_of(x), groups={WHOLE: gram_of(x).whole, **grams})
    half, own = {"c1": 0.5, "c2": 0.5}, {"c1": 1.5, "c2": -0.5}
    rows = [Row(name="by group", weights=half, groups={"layer 0": own}), row("mean", 0, 0.5, 0.5)]
    s = np.array([np.concatenate([1.5 * x[1, :20] - 0.5 * x[2, :20], (x[1, 20:] + x[2, 20:]) / 2]), (x[1] + x[2]) / 2])
    assert np.allclose(combined(gram, rows).whole.raw(), s @ s.T)
    assert np.allclose(distances(combined(gram, rows)), np.linalg.norm(s[:, None] - s[None], axis=2), atol=1e-7)
    with pytest.raises(GeometryError, match=r"need a Gram matrix by those groups.*no 'layer 0'"):
        combined(gram_of(x), rows)


def test_a_soup_of_a_checkpoint_with_nan_is_marked(x):
    bad = (Nonfinite(key="c2", file="f", tensor="w"),)
    soups = combined(gram_of(x, nonfinite=bad), [row("with", 0, 0.5, 0.5), row("without", 0, 1.0)])
    assert soups.bad_keys() == {"with"}


def test_the_angle_of_a_checkpoint_that_did_not_move_is_undefined(x):
    found = cosines(gram_of(x))
    assert np.isnan(found[0]).all()
    assert np.isfinite(found[1:, 1:]).all()


def test_direction_is_the_leading_right_singular_vector_along_the_net_displacement(x):
    rng = np.random.default_rng(1)
    step = rng.standard_normal(50)
    trajectory = x[0] + np.arange(7)[:, None] * step + 0.3 * rng.standard_normal((7, 50))
    everything = np.vstack([x[:1], trajectory])
    gram = gram_of(everything)
    rows = [only(i) for i in range(1, 8)]
    found = direction(gram, rows, branch="EXP1")
    centred = trajectory - trajectory.mean(axis=0)
    _, s, vt = np.linalg.svd(centred, full_matrices=False)
    net = trajectory[-1] - trajectory[0]
    exact = vt[0] * np.sign(vt[0] @ net)
    vector = found.coefficients @ (everything - everything[0])
    assert np.allclose(vector, exact, atol=1e-9)
    assert found.variance_share == pytest.approx(s[0] ** 2 / (s**2).sum())
    assert found.net_displacement == pytest.approx(np.linalg.norm(net))
    back = direction(gram, rows[::-1], branch="back")
    assert np.allclose(back.coefficients, -found.coefficients)


def test_directions_of_orthogonal_and_of_opposite_branches():
    e = np.eye(3)
    x = np.vstack([np.zeros(3), e[0], 2 * e[0], e[1], 2 * e[1], -e[0], -2 * e[0]])
    gram = gram_of(x)
    found = [direction(gram, [only(a), only(b)], branch=n) for n, a, b in (("A", 1, 2), ("B", 3, 4), ("C", 5, 6))]
    pairs = alignment(gram, found)
    assert pairs.branches == ("A", "B", "C")
    assert np.allclose(pairs.cosines, [[1, 0, -1], [0, 1, 0], [-1, 0, 1]])
    assert np.allclose(pairs.angles, [[0, 90, 180], [90, 0, 90], [180, 90, 0]], atol=1e-5)
    assert all(d.variance_share == pytest.approx(1) for d in found)


def test_direction_says_what_it_lacks(x):
    with pytest.raises(GeometryError, match="'EXP1' has 1 merged point in the matched interval"):
        direction(gram_of(x), [only(1)], branch="EXP1")
    twins = np.vstack([x[0], x[1], x[1], x[1]])
    with pytest.raises(GeometryError, match="'EXP1' does not move"):
        direction(gram_of(twins), [only(1), only(2), only(3)], branch="EXP1")
    with pytest.raises(GeometryError, match="c9 is not in the Gram matrix"):
        direction(gram_of(x), [only(1), only(9)], branch="EXP1")


def test_projection_keeps_distances_of_points_in_a_plane():
    rng = np.random.default_rng(2)
    basis = np.linalg.qr(rng.standard_normal((40, 2)))[0].T
    flat = rng.standard_normal((5, 2))
    x = rng.standard_normal(40) + flat @ basis
    found = project(gram_of(x), [only(i) for i in range(5)])
    assert np.allclose(
        np.linalg.norm(found.points[:, None] - found.points[None], axis=2),
        np.linalg.norm(flat[:, None] - flat[None], axis=2),
    )
    assert sum(found.variance_share) == pytest.approx(1)
    assert np.allclose(found.distance_kept, 1)


def test_projection_of_soups_lies_on_the_line_between_their_ends(x):
    ends = [only(1), only(2)]
    middle = row("middle", 0, 0.5, 0.5)
    found = project(gram_of(x), [*ends, middle], fit=[only(i) for i in range(6)])
    assert np.allclose(found.points[2], found.points[:2].mean(axis=0))


def test_projection_of_one_point_or_of_identical_points_is_zero(x):
    alone = project(gram_of(x), [only(3)])
    assert np.allclose(alone.points, 0)
    assert alone.variance_share == (0, 0)
    assert np.allclose(project(gram_of(np.vstack([x[0]] * 3)), [only(i) for i in range(3)]).points, 0)
    with pytest.raises(GeometryError, match="no point"):
        project(gram_of(x), [])


@pytest.mark.parametrize(("points", "window"), [(6, 1), (16, 1), (13, 4)])
def test_a_random_walk_has_a_leading_component_too_and_its_share_is_known(points, window):
    rng = np.random.default_rng(points)
    walk = np.cumsum(rng.standard_normal((points + window - 1, 20_000)), axis=0)
    merged = np.array([walk[i : i + window].mean(axis=0) for i in range(points)])
    s = np.linalg.svd(merged - merged.mean(axis=0), compute_uv=False)
    assert random_walk_share(points, window=window) == pytest.approx(s[0] ** 2 / np.sum(s**2), abs=0.01)


def test_the_share_of_a_random_walk_falls_to_six_over_pi_squared_and_averaging_raises_it():
    assert random_walk_share(2) == pytest.approx(1)
    assert random_walk_share(2000) == pytest.approx(6 / np.pi**2, abs=1e-3)
    assert 0.71 < random_walk_share(13, window=4) < 0.82  # what studies of this size have
