import importlib.util
import shutil
from pathlib import Path

import pytest

from trajsoup.lm.paper_suites import MID_TRAINING, POST_TRAINING, PRESETS, absent_configurations, preset_tasks
from trajsoup.lm.tasks import mid_training, post_training

DOCS = Path(__file__).parents[2] / "docs"


def test_the_papers_configurations_are_all_named_in_the_categories_of_the_embedded_suites():
    assert len(MID_TRAINING) == 41
    assert len(POST_TRAINING) == 14
    assert {c.category for c in MID_TRAINING} == set(mid_training.CATEGORIES)
    assert {c.category for c in POST_TRAINING} == set(post_training.SCENARIOS)


def test_a_preset_holds_the_configurations_that_lm_eval_has():
    for name, configurations in PRESETS.items():
        assert set(preset_tasks(name)) == {c.task for c in configurations if c.task}
        assert len(preset_tasks(name)) + len(absent_configurations(name)) == len(configurations)


def test_the_table_in_the_docs_lists_every_configuration_once():
    lines = (DOCS / "lm-eval.md").read_text().splitlines()
    rows = [line for line in lines if line.startswith("| ") and not line.startswith("| category")]
    expected = [(c.category, c.name, f"`{c.task}`" if c.task else "none") for c in MID_TRAINING + POST_TRAINING]
    assert [tuple(cell.strip() for cell in row.split("|")[1:4]) for row in rows] == expected


@pytest.mark.slow
def test_the_table_is_what_the_installed_lm_eval_gives(tmp_path):
    pytest.importorskip("lm_eval")
    shutil.copy(DOCS / "generate_lm_eval.py", tmp_path)
    spec = importlib.util.spec_from_file_location("generate_lm_eval", tmp_path / "generate_lm_eval.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.main()
    assert (tmp_path / "lm-eval.md").read_text() == (DOCS / "lm-eval.md").read_text()
