"""`--method quadratic` on runs as they lie on disk: products of real checkpoints, and the promise in soup.json."""

import json

import numpy as np
import pytest
import safetensors.numpy

from tests.bowls import SIZE, make_bowl, read_point, write_run
from trajsoup.core.scores import DocumentLosses, ValidationScores
from trajsoup.merge.branches import scan_branches
from trajsoup.merge.choice import Choice
from trajsoup.merge.make import make_soup
from trajsoup.merge.plan import plan_soup


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder, bowl = tmp_path_factory.mktemp("runs"), make_bowl()
    for seed, rate in enumerate((0.05, 0.4, 0.6)):
        write_run(folder / f"EXP{seed + 1}", bowl, seed=seed, learning_rate=rate, steps=100, every=20)
    return [folder / f"EXP{i}" for i in (1, 2, 3)], bowl


def documents_of(bowl):
    """A hundred documents, each with a minimum of its own."""
    pulls = 0.05 * np.random.default_rng(5).standard_normal((100, SIZE))

    def scoring(rows):
        found = {}
        for row in rows:
            x = sum(
                w * read_point(safetensors.numpy.load_file(f"{key}/model.safetensors"))
                for key, w in row.weights.items()
            )
            nll = bowl.loss(x) - pulls @ (bowl.curvature * (x - bowl.minimum))
            found[row.name] = ValidationScores(losses=DocumentLosses(nll=nll, targets=np.ones(100, np.int64)))
        return found

    return scoring


@pytest.mark.parametrize("over", ["anchors", "checkpoints"])
def test_the_soup_is_better_than_the_uniform_one_and_says_what_was_promised(runs, tmp_path, over):
    paths, bowl = runs
    study = scan_branches(paths)
    made = {}
    for name, params in (("trajectory-soup", {}), ("quadratic", {"over": over})):
        choice = Choice(strategy=name, params=params, screened=False)
        plan = plan_soup(study, choice, scoring=documents_of(bowl))
        make_soup(plan, tmp_path / name)
        made[name] = bowl.loss(read_point(safetensors.numpy.load_file(tmp_path / name / "model.safetensors")))
    assert made["quadratic"] < made["trajectory-soup"]
    promise = json.loads((tmp_path / "quadratic" / "soup.json").read_text())["promise"]
    assert promise["kept"]
    assert promise["measured"] > promise["error"] > 0
    assert promise["promised"] > 0
    assert any("promised" in note and "measured" in note for note in plan.notes)
    assert "promise" not in json.loads((tmp_path / "trajectory-soup" / "soup.json").read_text())
