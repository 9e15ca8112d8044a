import dataclasses
import html.parser
import json
import re

from tests.report.conftest import SMALL
from tests.report.sample_study import write_study
from trajsoup.report import contents as c
from trajsoup.report.page import page_parts, render_page, script_json
from trajsoup.report.reading import read_contents
from trajsoup.report.sections import sections

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


def test_the_live_page_is_the_same_body_with_plotly_beside_it(contents, page):
    live = render_page(contents, live="abc")
    assert page_parts(contents).body in live
    assert page_parts(contents).body in page.read_text(encoding="utf-8")
    assert [a["src"] for t, a in Outline(live).elements if t == "script" and "src" in a] == ["plotly.js"]
    assert len(live.encode()) < 1_000_000


def test_the_page_shows_the_answer_first_and_the_sections_in_order(contents):
    body = page_parts(contents).body
    ids = [a["id"] for t, a in Outline(body).elements if t == "section"]
    assert ids == [
        "answer",
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
    assert f"{contents.folder}/soup" in answer
    assert "trajsoup merge" in answer


def test_the_heading_follows_the_evidence(contents):
    def heading(**changes):
        loss = dataclasses.replace(contents.answer.loss, **changes)
        changed = dataclasses.replace(contents, answer=dataclasses.replace(contents.answer, loss=loss))
        found = re.search(r"<h1>(.*?)</h1>", page_parts(changed).body, re.DOTALL)[1]
        return " ".join(re.sub(r"<[^>]+>", "", found).split())

    soup, single = contents.answer.label, contents.answer.reference
    assert heading().startswith(f"{soup} beats {single} by 0.0")
    assert heading(within_noise=True) == f"{soup} and {single} cannot be told apart"
    assert heading(value=0.02, low=0.01, high=0.03).startswith(f"{single} beats {soup} by 0.0200 nats")


def test_every_name_is_escaped_in_body_and_data():
    evil = "</script><script>alert(1)</script>"
    branch = c.Branch(name=evil, status=evil, tokens=1, horizon=2, message=evil, losses=((1, 2.0), (2, 1.0)))
    soup = c.Soup(name=evil, label=evil, strategy=evil)
    contents = c.Contents(
        study=evil,
        folder=evil,
        branches=(branch,),
        soups={evil: soup},
        notes=(evil,),
        stages=(c.Stage(name=evil, status="running", detail=evil),),
    )
    text = render_page(contents, live="x")
    assert evil not in text
    assert sum(tag == "script" for tag, _ in Outline(text).elements) == 3  # data, plotly.js, ours
    assert data_of(text)["soups"][evil]["label"] == evil


def test_numbers_that_are_not_finite_become_null():
    assert json.loads(script_json({"a": [float("nan"), float("inf"), 1.5]})) == {"a": [None, None, 1.5]}


def test_an_empty_study_has_a_page():
    body = page_parts(c.Contents(study="s", folder="s")).body
    assert "This study has no soup to compare" in body
    assert "No branch is known yet." in body


def test_runs_that_exist_have_a_page_with_everything_that_is_known_of_them(tmp_path):
    found = read_contents(write_study(tmp_path, dataclasses.replace(SMALL, foreign=True)))
    body = page_parts(found).body
    assert "of the foreign runs, not known" in body
    assert "training of all branches (tokens)" in page_parts(found).json()  # no FLOPs, so the axis is in tokens
    names = {f.name for section in sections(found) for f in section.figures}
    assert "frontier-loss" in names
    assert "training" not in names  # nothing was logged
