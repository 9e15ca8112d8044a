import asyncio
import dataclasses
import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.report.conftest import SMALL
from tests.report.sample_study import write_study
from trajsoup.report.serve import LOOPBACK, fingerprint, inside, is_loopback, make_app
from trajsoup.study.train.outcomes import OUTCOME

pytest.importorskip("starlette")
pytest.importorskip("httpx")


def client(study, **settings):
    from starlette.testclient import TestClient

    return TestClient(make_app(study, **settings), base_url="http://127.0.0.1", follow_redirects=False)


def test_the_page_and_its_parts_come_from_the_study(study):
    with client(study) as http:
        page = http.get("/")
        assert page.status_code == 200
        assert "Trajectory Soup (Extended)" in page.text
        parts = http.get("/parts.json").json()
        assert set(parts) == {"body", "figures", "soups", "checkpoints"}
        assert parts["body"] in page.text
        assert "Plotly" in http.get("/plotly.js").text


def test_every_answer_forbids_guessing_framing_and_outside_content(study):
    with client(study) as http:
        for path in ("/", "/parts.json", "/files/records/plan.json", "/nowhere"):
            headers = http.get(path).headers
            assert headers["x-content-type-options"] == "nosniff"
            assert "frame-ancestors 'none'" in headers["content-security-policy"]
            assert headers["content-security-policy"].startswith("default-src 'none'")


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH"])
def test_only_reading_is_possible(study, method):
    with client(study) as http:
        for path in ("/", "/parts.json", "/files/records/plan.json"):
            assert http.request(method, path).status_code == 405


def test_a_record_of_the_study_can_be_read(study):
    with client(study) as http:
        assert json.loads(http.get("/files/records/plan.json").text)["baseline"] == "EXP1"


@pytest.mark.parametrize(
    "path",
    [
        "../secret.json",
        "records/../../secret.json",
        "%2e%2e/secret.json",
        "..%2fsecret.json",
        "records/%2e%2e/%2e%2e/secret.json",
        "....//secret.json",
        "link.json",
        "linked/secret.json",
        "/etc/passwd",
        "%2fetc%2fpasswd",
        ".hidden.json",
        "records/plan.json%00.txt",
        "records",
        "weights.safetensors",
        "page.html",
    ],
)
def test_nothing_outside_the_study_and_no_weights_can_be_read(tmp_path, path):
    study = write_study(tmp_path / "study", dataclasses.replace(SMALL, until="plan"))
    outside = tmp_path / "outside"
    outside.mkdir()
    for secret in (tmp_path / "secret.json", outside / "secret.json", study / ".hidden.json"):
        secret.write_text('{"secret": true}')
    (study / "weights.safetensors").write_bytes(b"secret")
    (study / "page.html").write_text("<script>secret</script>")
    (study / "link.json").symlink_to(tmp_path / "secret.json")
    (study / "linked").symlink_to(outside)
    with client(study) as http:
        answer = http.get(f"/files/{path}")
        assert answer.status_code == 404
        assert "secret" not in answer.text


def test_a_link_inside_the_study_may_be_followed(tmp_path):
    study = write_study(tmp_path / "study", dataclasses.replace(SMALL, until="plan"))
    (study / "also.json").symlink_to(study / "records" / "plan.json")
    assert inside(study.resolve(), "also.json") == (study / "records" / "plan.json").resolve()


def test_without_the_token_nothing_is_shown(study):
    with client(study, token="s3cret", hosts=("*",)) as http:
        for path in ("/", "/parts.json", "/plotly.js", "/events", "/files/records/plan.json"):
            answer = http.get(path)
            assert answer.status_code == 401
            assert "EXP1" not in answer.text
        assert http.get("/?token=wrong").status_code == 401
        assert http.get("/", headers={"Authorization": "Bearer wrong"}).status_code == 401


def test_the_token_opens_the_page_once_and_then_a_cookie_does(study):
    with client(study, token="s3cret", hosts=("*",)) as http:
        answer = http.get("/?token=s3cret")
        assert answer.status_code == 303
        assert answer.headers["location"] == "/"
        assert "httponly" in answer.headers["set-cookie"].lower()
        assert "samesite=strict" in answer.headers["set-cookie"].lower()
        assert http.get("/").status_code == 200  # with the cookie
    with client(study, token="s3cret", hosts=("*",)) as http:
        assert http.get("/parts.json", headers={"Authorization": "Bearer s3cret"}).status_code == 200


def test_a_forged_host_name_is_refused_on_this_machine(study):
    with client(study) as http:
        assert http.get("/", headers={"Host": "evil.example"}).status_code == 400
        assert http.get("/", headers={"Host": "localhost:8765"}).status_code == 200


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.2", "::1", "localhost"])
def test_the_address_that_serve_prints_is_answered(study, host):
    with client(study, hosts=(*LOOPBACK, host)) as http:
        assert http.get("/", headers={"Host": f"[{host}]:8765" if ":" in host else f"{host}:8765"}).status_code == 200
        assert http.get("/", headers={"Host": "[::2]:8765"}).status_code == 400
        assert http.get("/", headers={"Host": ""}).status_code == 400


@pytest.mark.parametrize("path", ["//evil.example/", "///evil.example", "/%2F/evil.example", "/\\evil.example"])
def test_a_token_leads_to_no_other_host(study, path):
    with client(study, token="s3cret") as http:
        to = http.get(f"http://127.0.0.1{path}?token=s3cret").headers["location"]
    assert to.startswith("/")
    assert not to.startswith(("//", "/\\"))


def test_a_page_is_sent_in_pieces_of_one_copy(study, monkeypatch):
    monkeypatch.setattr("trajsoup.report.serve.PIECE_BYTES", 1000)
    app = make_app(study)
    assert app.state.live.current(whole=True)[1] is app.state.live.current(whole=True)[1]
    (study / "records" / "long.txt").write_text("x" * 5000)
    for path in ("/", "/parts.json", "/plotly.js", "/files/records/long.txt"):
        sent = []

        async def send(message, sent=sent):
            sent.append(message)

        async def receive():
            await asyncio.sleep(60)

        scope = {"type": "http", "method": "GET", "path": path, "raw_path": path.encode(), "query_string": b""}
        headers = [(b"host", b"127.0.0.1")]
        asyncio.run(app({**scope, "headers": headers, "asgi": {"spec_version": "2.4"}, "server": None}, receive, send))
        bodies = [m["body"] for m in sent if m["type"] == "http.response.body"]
        assert sum(map(len, bodies)) >= 5000
        assert max(map(len, bodies)) <= 1000


SERVER = """
import sys
from pathlib import Path
from trajsoup.report.serve import LivePage, listening, run_server

LivePage.current = lambda self, *, whole, page=b"x" * 49_000_000: ("v", page)
bound = listening("127.0.0.1", 0)
print(bound.getsockname()[1], flush=True)
run_server(Path(sys.argv[1]), bound=bound, host="127.0.0.1", token=None)
"""


def test_forty_readers_who_stop_reading_a_page_of_49_mb_take_little_memory(study):
    with subprocess.Popen([sys.executable, "-c", SERVER, str(study)], stdout=subprocess.PIPE, text=True) as server:
        port = int(server.stdout.readline())
        readers = []
        try:
            for number in range(41):
                readers.append(socket.create_connection(("127.0.0.1", port), timeout=120))
                readers[-1].sendall(b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
                assert readers[-1].recv(100).startswith(b"HTTP/1.1 200")
                if number == 0:
                    alone = resident_bytes(server.pid)
            together = resident_bytes(server.pid)
        finally:
            for reader in readers:
                reader.close()
            server.kill()
    assert together - alone < 100_000_000  # a copy each would be 2 GB


def resident_bytes(pid):
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def test_a_pipe_in_the_place_of_an_outcome_does_not_stop_the_page(tmp_path):
    study = write_study(tmp_path, dataclasses.replace(SMALL, until="plan"))
    outcome = study / "branches" / "EXP1" / OUTCOME
    outcome.unlink(missing_ok=True)
    os.mkfifo(outcome)
    with client(study) as http:
        assert http.get("/").status_code == 200


def test_the_fingerprint_changes_with_records_and_metrics_only(tmp_path):
    study = write_study(tmp_path, dataclasses.replace(SMALL, until="plan"))
    first = fingerprint(study)
    (study / "branches" / "EXP1" / "checkpoint-1").mkdir()
    assert fingerprint(study) == first
    with (study / "branches" / "EXP1" / "metrics.jsonl").open("a") as file:
        file.write('{"tokens": 1, "train_loss": 1.0}\n')
    second = fingerprint(study)
    assert second != first
    (study / "records" / "sweeps").mkdir()
    (study / "records" / "sweeps" / "x.json").write_text("{}")
    assert fingerprint(study) != second


def test_a_damaged_record_is_named_and_not_a_crash(tmp_path):
    study = write_study(tmp_path, dataclasses.replace(SMALL, until="plan"))
    (study / "records" / "plan.json").write_text("{")
    with client(study) as http:
        answer = http.get("/")
        assert answer.status_code == 503
        assert "plan.json is damaged" in answer.text


@pytest.mark.parametrize(
    ("host", "expected"), [("127.0.0.1", True), ("::1", True), ("0.0.0.0", False), ("10.0.0.4", False)]
)
def test_only_this_machines_own_addresses_need_no_token(host, expected):
    assert is_loopback(host) is expected
