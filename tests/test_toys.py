"""What one adds from outside, in one function each, is merged, studied, swept, printed and drawn like the package's own."""

import json

import pytest
import safetensors.torch

from tests.command import refused, succeeds
from tests.golden import study as golden
from tests.golden.entry import run_found
from tests.lm.stand_in import VOCAB
from tests.toy_format import Toy, write_toy
from trajsoup.core.coefficients import WEIGHTINGS, weighting
from trajsoup.core.methods.asking import Asking, Decision, Score
from trajsoup.core.methods.freedom import Freedom
from trajsoup.core.methods.table import METHODS, Scope, method
from trajsoup.lm.tokenizer import train_tokenizer
from trajsoup.report import sections
from trajsoup.report.section import Drawn, Entry, Section
from trajsoup.report.table import number, tabulate, text
from trajsoup.store.formats import FORMATS, register
from trajsoup.study.choosing.entries import Axis, entry_of
from trajsoup.study.records.evaluations import EvaluationsRecord
from trajsoup.study.records.files import Records
from trajsoup.study.records.rows import RowsRecord
from trajsoup.study.records.sweeps import SweepRecord
from trajsoup.study.sweeps.points import against_the_first
from trajsoup.study.sweeps.table import SWEEPS, sweep

SETTINGS = """
corpus: {train: documents.txt}
evaluate: {validation_tokens: 1k, test_tokens: 1k, probe_tokens: 1k, ks: [1, 2], horizons: 2, resamples: 50, tolerance: 0.5,
           methods: [toy-greedy]}
sweeps: [horizons, toy-sweep]
"""
SWEPT = []  # each time that the toy's entries were made


@pytest.fixture(scope="module", autouse=True)
def toys():
    """A method that asks nothing, one that asks again and again, a weighting, a sweep, a section, a checkpoint format."""

    @method(name="toy", label="Toy", reference="a test", scope=Scope.SEVERAL)
    def toy(freedom: Freedom) -> Decision:
        """The newest checkpoint of each branch, 3 : 1 : 1 ..."""
        stop = freedom.stops[-1]
        newest = [pool.candidates[-1] for pool in freedom.at(stop)]
        shares = [3.0, *[1.0] * (len(newest) - 1)]
        weights = {c.key: share / sum(shares) for c, share in zip(newest, shares, strict=True)}
        return Decision(option=freedom.option(weights, stop=stop))

    @method(name="toy-greedy", label="Toy, greedy", reference="a test", scope=Scope.ONE, default=False)
    def toy_greedy(freedom: Freedom) -> Asking:
        """From the last checkpoint backwards, as long as the mean gets better."""
        stop = freedom.stops[-1]
        keys = [c.key for c in reversed(freedom.at(stop)[0].candidates)]
        best, score, among = None, None, 0
        for n in range(1, len(keys) + 1):
            option = freedom.option(dict.fromkeys(keys[:n], 1 / n), stop=stop)
            losses = (yield Score(options=(option,)))[option.name].losses
            assert losses is not None
            among += 1
            if score is not None and losses.loss() >= score:
                break
            best, score = option, losses.loss()
        assert best is not None
        return Decision(option=best, free=("checkpoints",), among=among, score=score)

    @weighting(name="toy-decay", says="halves from one to the next", reference="a test", swept=False)
    def decay(candidates):
        return [0.5**j for j in range(len(candidates))]

    @sweep(name="toy-sweep", title="Toys in a row", paper="a test", axis="toy", pairs=against_the_first, default=False)
    def toy_sweep(field, asked):
        SWEPT.append(asked.name)
        soup = METHODS["trajectory-soup"]
        for scheme in ("equal", "toy-decay"):
            freedom = field.freedom(soup, [field.all_together], free=("k",), weights=scheme)
            at = Axis(series="toys", x=scheme)
            yield entry_of(soup, freedom, key=scheme, label=scheme, sweep=asked.name, at=at)

    def toy_section(records):
        import plotly.graph_objects as go

        rows = records.require(RowsRecord).rows
        columns = {"row": lambda r: text(r.label), "merged": lambda r: number(len(r.weights))}
        figure = Drawn(name="toy-bars", title="Toy", says="Bars.", draw=lambda: go.Figure(go.Bar(y=[len(rows)])))
        return Section(figures=(figure,), more=(tabulate("toy-table", "How many are merged", rows, columns),))

    register(Toy())
    sections.register(Entry(name="toy", title="A toy section", make=toy_section, missing="nothing"))
    yield
    del FORMATS[Toy.name]
    sections.SECTIONS.pop()
    METHODS.remove("toy")
    METHODS.remove("toy-greedy")
    WEIGHTINGS.remove("toy-decay")
    SWEEPS.remove("toy-sweep")


@pytest.fixture(scope="module")
def studied(tmp_path_factory):
    """Found runs, one of them in the toy format, and a study of them."""
    folder = tmp_path_factory.mktemp("toys")
    fork_point, runs = golden._write_runs(folder)
    for checkpoint in runs[1].iterdir():
        weights = checkpoint / "model.safetensors"
        write_toy(checkpoint, safetensors.torch.load_file(weights), codec="zlib")
        weights.unlink()
    records = run_found(folder, fork_point, runs, settings=SETTINGS, corpus=golden._corpus(folder))
    assert SWEPT == ["toy-sweep"]  # for choosing, for scoring on test and for its record: once
    return folder / "found.yaml", Records(records.parent)


def test_a_toy_method_merges_and_the_soup_says_so(runs, tmp_path):
    succeeds("merge", runs / "EXP1", runs / "EXP2", "--method", "toy", "-o", tmp_path / "soup")
    record = json.loads((tmp_path / "soup" / "soup.json").read_text())
    assert {i["path"].rpartition("/runs")[2][-18:]: i["weight"] for i in record["ingredients"]} == {
        "EXP1/checkpoint-40": 0.75,
        "EXP2/checkpoint-40": 0.25,
    }
    assert (record["soup"], record["choice"]["strategy"], record["choice"]["select"]) == ("toy", "toy", None)
    assert "the `toy` of 2 checkpoints" in (tmp_path / "soup" / "README.md").read_text()
    succeeds("verify", tmp_path / "soup")
    message = refused("merge", runs / "EXP1", "--method", "toy", "--select", "top-k", "-o", tmp_path / "other")
    assert "toy has weights of its own" in message


def test_a_toy_weighting_merges(runs, tmp_path):
    args = ("merge", runs / "EXP1", runs / "EXP2", "--k", 2, "--weights", "toy-decay", "--dry-run", "--json")
    weights = succeeds(*args).json["row"].values()
    assert sorted(weights) == pytest.approx([1 / 6, 1 / 6, 1 / 3, 1 / 3])


def test_a_method_that_asks_cannot_merge_without_somebody_who_scores(runs, tmp_path):
    message = refused("merge", runs / "EXP1", runs / "EXP2", "--method", "toy-greedy", "-o", tmp_path / "soup")
    assert "toy-greedy asks how 1 merged models score" in message
    assert "--validation" in message


def test_a_method_that_asks_merges_on_documents_that_one_hands_over(tmp_path):
    fork_point, runs = golden._write_runs(tmp_path)
    train_tokenizer(["a b c"], fork_point, vocab_size=VOCAB + 2)  # bytes and special tokens; plain text needs fewer
    (tmp_path / "held-out.txt").write_text("the cat sat on the mat and ate the hat\n" * 20)
    args = ("merge", *runs[:2], "--no-screen", "--fork-point", fork_point, "--dry-run", "--json")
    done = succeeds(*args, "--method", "toy-greedy", "--validation", tmp_path / "held-out.txt")
    assert {key.rpartition("/")[2] for key in done.json["row"]} >= {"step_8"}
    assert "choosing: 1 of 1 rows" in done.err
    learned = ("--method", "learned-soup", "--param", "steps=2", "--param", "by=layer", "--window", 2)
    done = succeeds(*args, *learned, "--validation", tmp_path / "held-out.txt")
    assert len(done.json["row"]) == 4
    assert any("consumed 0 validation passes and" in note for note in done.json["notes"])
    assert "nobody trains here: hand over documents (--validation FILE" in refused(*args, *learned)


def test_a_toy_method_is_a_row_of_the_main_table_and_of_every_curve(studied):
    _, records = studied
    rows = {row.name: row for row in records.require(RowsRecord).rows}
    assert {"toy/limited", "toy/extended", "toy-greedy"} <= set(rows)
    assert (rows["toy/extended"].label, rows["toy/extended"].select) == ("Toy (Extended)", "own")
    assert rows["toy-greedy"].chosen_on.free == ("checkpoints",)
    assert {"toy/limited", "toy-greedy"} <= {e.row for e in records.require(EvaluationsRecord).evaluations}
    swept = {point.row.partition("@")[0] for point in records.require(SweepRecord, "horizons").points}
    assert {"horizons/toy/limited", "horizons/toy-greedy", "horizons/raw-best"} <= swept


def test_a_run_prints_the_toys_and_its_report_draws_them(studied):
    study, records = studied
    done = succeeds("run", study, "--format", "markdown")  # nothing is left to do but to print and to draw
    assert "| Toy (Limited) |" in done.out
    assert "### How many are merged" in done.out
    assert "### Toys in a row (a test)" in done.out
    assert [c.label for c in records.require(SweepRecord, "toy-sweep").comparisons][:1] == [
        "toy-decay against equal of run0+run1+run2"
    ]
    assert "trajectory-soup/limited@4000 against single-merge@4000: " in done.out  # compared, with no row in common
    page = (records.study / "report" / "report.html").read_text()
    for shown in ("Toy (Extended)", "Toy, greedy", "A toy section", "toy-bars", "ablation-toy-sweep", "run1/step_8"):
        assert shown in page


def test_a_sweep_and_a_report_are_made_again_with_the_toys(studied, tmp_path):
    study, records = studied
    assert "Toys in a row" in succeeds("sweep", study, "toy-sweep").out
    succeeds("report", records.study, "-o", tmp_path, "--no-images")
    assert (tmp_path / "tables" / "toy-table.csv").read_text().startswith("row,merged\n")


def test_checkpoints_in_a_toy_format_are_merged_beside_others(studied, tmp_path):
    runs = [studied[0].parent / name for name in ("run0", "run1")]
    succeeds("merge", *runs, "--strategy", "full-soup", "--no-screen", "-o", tmp_path / "soup")
    listed = json.loads((tmp_path / "soup" / "soup.json").read_text())["ingredients"]
    assert sum("pieces.json" in i["blake3"] for i in listed) == 8
    succeeds("verify", tmp_path / "soup", "--full")
