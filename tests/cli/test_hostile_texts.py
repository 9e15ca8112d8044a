"""Names and numbers that would do something to a terminal, a spreadsheet, a shell or the arithmetic."""

import subprocess
import sys

import pytest

from trajsoup.cli.console import say, show_json, show_notes, show_table
from trajsoup.cli.options import Form
from trajsoup.cli.study_output import show
from trajsoup.core.soup import Row
from trajsoup.engine.layout import make_layout
from trajsoup.engine.sinks import MemorySink
from trajsoup.errors import BlendError, StudyError
from trajsoup.report.table import pairs_table
from trajsoup.store.checkpoint import open_checkpoint
from trajsoup.store.fields import At
from trajsoup.store.formats.safetensors import build_header
from trajsoup.study.file.trainer import parse_trainer

ESCAPE = "\x1b]0;owned\x07\x9b2J"


def test_no_escape_sequence_reaches_the_terminal(capsys):
    say(f"soup {ESCAPE} is as recorded")
    show_notes([ESCAPE])
    show_json({"name": ESCAPE, "file": "\udcff"})
    show_table(ESCAPE, [ESCAPE, "n"], [[ESCAPE, 1]])
    done = capsys.readouterr()
    for text in (done.out, done.err):
        assert not set("\x1b\x07\x9b") & set(text)
        text.encode("utf-8")


def test_a_name_is_no_formula_in_any_csv(capsys):
    show(pairs_table("t", "T", [("=1+1", "@x"), ("-1+1", "+x")]), Form.CSV)
    out = capsys.readouterr().out
    assert out.splitlines()[1:] == ["'=1+1,'@x", "'-1+1,'+x"]


@pytest.mark.parametrize("environment", [{"A=B": "x"}, {"": "x"}, {"A\0": "x"}, {"A": "x\0"}])
def test_a_variable_that_no_process_could_have_is_refused(environment):
    with pytest.raises(StudyError, match="cannot be the name of a variable"):
        parse_trainer({"command": "train", "environment": environment}, where=At("trainer"))


@pytest.mark.parametrize("weight", [1e308, -1e308, 1e101])
def test_weights_whose_sum_leaves_the_numbers_are_refused(weight):
    with pytest.raises(BlendError, match="use a finite number"):
        Row(name="x", weights={"a": weight, "b": weight}).require_sum_one()


def test_a_tensor_of_a_hundred_axes_is_no_array(tmp_path):
    lead, _ = build_header([("a", "F32", (1,) * 100)], metadata={})
    (tmp_path / "model.safetensors").write_bytes(lead + bytes(4))
    with pytest.raises(BlendError, match="has 100 axes"):
        MemorySink(make_layout(open_checkpoint(tmp_path))).tensors()


INTERRUPTED = """
import sys

class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:
            raise KeyboardInterrupt

sys.meta_path.insert(0, Finder())
sys.argv[1:] = ["scan", "runs"]
from trajsoup.cli import main
main()
"""


@pytest.mark.parametrize("module", ["trajsoup.cli.app", "trajsoup.cli.scan"])
def test_an_interrupt_while_modules_are_imported_is_an_interrupt(module):
    code = INTERRUPTED.format(module=module)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (130, "interrupted: nothing was begun\n")
