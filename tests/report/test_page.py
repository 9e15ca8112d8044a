import dataclasses
import html.parser
import json
import re
import shutil

from tests.report.conftest import SMALL
from tests.report.sample_study import plan_record, write_study
from trajsoup.report.page import page_parts, render_page, script_json
from trajsoup.report.sections import make_sections
from trajsoup.report.study import open_study
from trajsoup.study.records.answer import AnswerRecord
from trajsoup.study.records.files import Records
from trajsoup.study.records.train import TrainRecord

LIMIT_BYTES = 8_000_000


class Outline(html.parser.HTMLParser):
    """Every element with its attributes, as a browser would see them."""

    def __init__(self, text):
        super().__init__()
        self.elements = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))


def data_of(text):
    return json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)[1])


def test_the_file_needs_nothing_beside_it_and_forbids_the_network(page):
    text = page.read_text(encoding="utf-8")
    assert len(text.encode()) < LIMIT_BYTES
    outline = Outline(re.sub(r"<script>.*?</script>", "", text, flags=re.DOTALL))
    for tag, attributes in outline.elements:
        assert "src" not in attributes, (tag, attributes)
        assert not attributes.get("href", "").startswith(("http", "//", "/")), attributes
    (policy,) = [a["content"] for t, a in outline.elements if t == "meta" and "http-equiv" in a]
    assert policy.startswith("default-src 'none'")
    assert "connect-src" not in policy


def test_the_live_page_is_the_same_body_with_plotly_beside_it(records, page):
    live = render_page(records, live="abc")
    assert page_parts(records).body in live
    assert page_parts(records).body in page.read_text(encoding="utf-8")
    assert [a["src"] for t, a in Outline(live).elements if t == "script" and "src" in a] == ["plotly.js"]
    assert len(live.encode()) < 1_000_000


def test_the_page_shows_the_answer_first_and_the_sections_in_order(records):
    body = page_parts(records).body
    ids = [a["id"] for t, a in Outline(body).elements if t == "section"]
    assert ids == [
        "answer",
        "crossing",
        "conditions",
        "results",
        "curves",
        "compute",
        "scaling",
        "ablations",
        "geometry",
        "branches",
        "provenance",
    ]
    answer = body[: body.index('id="results"')]
    assert "strong evidence" in answer
    assert f"{records.study.name}/soup" in answer
    assert "trajsoup merge" in answer


def test_the_heading_follows_the_evidence(study, tmp_path):
    copy = shutil.copytree(study, tmp_path / "study")
    known = Records(copy).require(AnswerRecord)

    def heading(**changes):
        loss = dataclasses.replace(known.loss, **changes)
        Records(copy, held=True).write(dataclasses.replace(known, loss=loss))
        found = re.search(r"<h1>(.*?)</h1>", page_parts(open_study(copy)).body, re.DOTALL)[1]
        return " ".join(re.sub(r"<[^>]+>", "", found).split())

    soup, single = "Trajectory Soup (Limited)", "Single-Trajectory Merge"
    assert heading().startswith(f"{soup} beats {single} by 0.0")
    assert heading(primary=False, p_holm=None).endswith("not registered")
    assert heading(p_holm=0.2) == f"{soup} and {single} cannot be told apart"
    assert heading(difference=0.02, low=0.01, high=0.03).startswith(f"{single} beats {soup} by 0.0200 nats")


def test_every_name_is_escaped_in_body_and_data(tmp_path):
    evil = "</script><script>alert(1)</script>"
    shape = dataclasses.replace(SMALL, branches=(evil, "EXP2"), title=evil, until="rows")
    study = write_study(tmp_path / "study", shape)
    plan = dataclasses.replace(plan_record(shape), notes=(evil,))
    Records(study, held=True).write(plan)
    train = Records(study).require(TrainRecord)
    broken = dataclasses.replace(train.branches[0], status=evil, message=evil)
    Records(study, held=True).write(dataclasses.replace(train, branches=(broken, *train.branches[1:])))
    text = render_page(open_study(study), live="x")
    assert evil not in text
    assert sum(tag == "script" for tag, _ in Outline(text).elements) == 3  # data, plotly.js, ours
    assert f"single/{evil}" in data_of(text)["soups"]


def test_numbers_that_are_not_finite_become_null():
    assert json.loads(script_json({"a": [float("nan"), float("inf"), 1.5]})) == {"a": [None, None, 1.5]}


def test_an_empty_study_has_a_page(tmp_path):
    (tmp_path / "s" / "records").mkdir(parents=True)
    body = page_parts(open_study(tmp_path / "s")).body
    assert "No answer yet: the study is still running" in body
    assert "No branch is known yet." in body


def test_runs_that_exist_have_a_page_with_everything_that_is_known_of_them(tmp_path):
    found = open_study(write_study(tmp_path, dataclasses.replace(SMALL, foreign=True)))
    parts = page_parts(found)
    assert "of the foreign runs, not known" in parts.body
    assert "training of all branches (tokens)" in parts.json()  # no FLOPs, so the axis is in tokens
    names = {f.name for shown in make_sections(found) for f in shown.content.figures}
    assert "frontier-loss" in names
    assert "training" not in names  # nothing was logged


def test_while_branches_train_their_curves_come_first_and_one_line_says_what_is_to_come(tmp_path):
    training = page_parts(
        open_study(write_study(tmp_path / "half", dataclasses.replace(SMALL, until="plan", done=0.5)))
    )
    sections = re.findall(r'<section id="(\w+)"', training.body)
    assert sections[:2] == ["answer", "branches"]
    assert "results" not in sections
    assert "Still to come: One long run or several short ones" in training.body
    done = page_parts(open_study(write_study(tmp_path / "whole", SMALL)))
    assert re.findall(r'<section id="(\w+)"', done.body)[1] == "crossing"
    assert "Still to come" not in done.body
