"""A run's folder that somebody else filled: its log is not written through a link."""

import pytest
from transformers import TrainerControl, TrainerState, TrainingArguments

from trajsoup.errors import OutputError
from trajsoup.integrations import SoupCallback
from trajsoup.lm.branch_files import METRICS, rewind_metrics

LINES = '{"tokens": 1}\n{"tokens": 2}\n'


@pytest.fixture
def precious(tmp_path):
    path = tmp_path / "precious"
    path.write_text("kept")
    return path


def test_the_lines_after_a_resumed_checkpoint_are_dropped_beside_any_link(tmp_path, precious):
    (tmp_path / METRICS).write_text(LINES)
    for name in (f".{METRICS}.unfinished", f".{METRICS}"):
        (tmp_path / name).symlink_to(precious)
    rewind_metrics(tmp_path, tokens=1)
    assert (tmp_path / METRICS).read_text() == LINES.splitlines(keepends=True)[0]
    assert precious.read_text() == "kept"


def test_the_callback_adds_to_no_link(tmp_path, precious):
    (tmp_path / METRICS).symlink_to(precious)
    arguments = TrainingArguments(output_dir=str(tmp_path), report_to=[], use_cpu=True)
    with pytest.raises(OutputError, match="is a link"):
        SoupCallback(tokens_per_step=1).on_log(arguments, TrainerState(global_step=1), TrainerControl(), {"loss": 1.0})
    assert precious.read_text() == "kept"
