"""Against the neighbours: what is said of a record, and that the figure has every method, those that train included."""

import dataclasses

from trajsoup.core.budget import Setting
from trajsoup.core.signal import Signal
from trajsoup.core.splits import Split
from trajsoup.report.sections import neighbours
from trajsoup.report.sections.neighbours_figures import Difference, differences
from trajsoup.study.file.primary import LIMITED
from trajsoup.study.records.comparisons import ComparisonRecord
from trajsoup.study.records.estimate import Estimate
from trajsoup.study.records.files import writing
from trajsoup.study.records.neighbours import NeighboursRecord, TrainedNeighbour
from trajsoup.study.records.rows import ChosenOn
from trajsoup.study.records.sweeps import SweepPoint, SweepRecord

CHOSEN = ChosenOn(split=Split.VALIDATION, signal=Signal.LOSS, free=("k",), among=2, score=2.0, gradient_tokens=10)


def point(row, x, loss, *, setting, strategy="lawa"):
    return SweepPoint(
        row=row,
        series="one branch of T" if setting is None else "N branches of T/N",
        x=x,
        strategy=strategy,
        setting=setting,
        weights={"a": 1.0},
        k=None,
        n_branches=1,
        merge_size=1,
        horizon=100,
        budget_tokens=100_000,
        branches=("EXP1",),
        chosen_on=CHOSEN,
        validation_loss=loss,
        validation_accuracy=None,
        test_loss=Estimate(value=loss, count=50),
        test_accuracy=None,
    )


def difference(model, reference, low, high):
    return ComparisonRecord(
        name=f"{model} against {reference}",
        model=model,
        reference=reference,
        question="",
        matched="",
        signal=Signal.LOSS,
        split=Split.TEST,
        difference=(low + high) / 2,
        low=low,
        high=high,
        p=0.01,
        resamples_better=0.0,
        count=50,
        label="",
        kept=((), ()),
    )


def swept():
    return SweepRecord(
        inputs={},
        name="methods",
        kind="methods",
        title="Against the neighbours",
        paper="",
        x_label="method",
        points=(
            point("soup", "Trajectory Soup", 2.0, setting=Setting.LIMITED, strategy="trajectory-soup"),
            point("lawa/limited", "LAWA", 1.9, setting=Setting.LIMITED),
            point("lawa/one", "LAWA", 2.1, setting=None),
        ),
        comparisons=(
            difference("lawa/limited", "soup", -0.15, -0.05),
            difference("lawa/one", "soup", 0.05, 0.15),
            difference("lawa/limited", "lawa/one", -0.3, -0.1),
        ),
    )


def test_a_neighbour_that_wins_is_said_to_win_and_the_second_level_is_counted():
    said = neighbours.says(swept())
    assert "validation prefers LAWA of N branches of T/N: −0.1000 nats from it" in said
    assert "better." in said
    assert (
        "Of 1 methods of one trajectory, the mean over N branches of T/N is clearly better than the best branch" in said
    )
    assert "of T in 1 and clearly worse in 0." in said


def test_the_figure_has_every_method_and_those_that_train(tmp_path):
    model = TrainedNeighbour(
        name="diloco",
        label="DiLoCo",
        made_of="",
        tokens=120_000,
        models=1,
        weights={},
        validation_loss=2.2,
        test_loss=Estimate(value=2.2, count=50),
        test_accuracy=None,
    )
    with writing(tmp_path) as records:
        records.write(swept())
        alone = neighbours.section(records)
        against = (difference("diloco", LIMITED, 0.15, 0.25),)
        records.write(NeighboursRecord(inputs={}, models=(model,), comparisons=against))
        beside = neighbours.section(records)
    apart, budget = (figure.spec() for figure in alone.figures)
    assert len(budget["data"]) == 2
    assert {y for trace in apart["data"] for y in trace["y"]} == {"LAWA"}
    apart, budget = (figure.spec() for figure in beside.figures)
    *_, trained = budget["data"]
    assert list(trained["x"]) == [120.0]
    *_, trained = apart["data"]
    assert (trained["name"], list(trained["x"]), list(trained["y"])) == ("methods that train", [0.2], ["DiLoCo"])
    (table,) = alone.tables
    assert len(table.rows) == 3


def test_the_caption_never_names_what_happens_to_be_lowest_on_test():
    sweep = swept()
    lucky = dataclasses.replace(
        point("ema/limited", "Lucky", 2.3, setting=Setting.LIMITED), test_loss=Estimate(value=1.5, count=50)
    )
    said = neighbours.says(dataclasses.replace(sweep, points=(*sweep.points, lucky)))
    assert "validation prefers LAWA of N branches of T/N" in said
    assert "Lucky" not in said


def test_what_is_far_off_does_not_press_the_near_ones_together():
    near = [
        Difference(method=f"m{i}", level="a", value=0.001 * i, low=0.001 * i, high=0.001 * i, opens=None)
        for i in range(-2, 6)
    ]
    far = dataclasses.replace(near[0], method="far", value=1.0, low=0.9, high=1.1)
    assert "range" not in differences(near).to_plotly_json()["layout"]["xaxis"]
    shown = differences([*near, far]).to_plotly_json()["layout"]
    assert shown["xaxis"]["range"][1] < 0.1
    assert shown["xaxis"]["range"][0] < -0.002
    assert shown["yaxis"]["categoryarray"][0] == "far"  # the last line
    assert shown["yaxis"]["categoryarray"][-1] == "m-2"
