"""Every command that README and docs show is run: on small runs, or, where it would take long or needs a cluster or a
store, as far as its words are read (`--help` refuses an option that does not exist)."""

import re
import shlex
import shutil
from pathlib import Path

import pytest

from tests.command import trajsoup

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
GENERATED = ("cli.md",)
LONG = (
    "plan",
    "run",
    "sweep",
    "serve",
    "train",
    "demo",
    "watch",
    "design",
)  # minutes; tests of their own run them on tiny studies
ELSEWHERE = (
    "s3://",
    "gs://",
    "hf://",
    "--engine",
    "push",
)  # clusters, stores, the Hub: tests/cluster, tests/cli/test_push
OTHER_FORMATS = (
    "--like",
    "--format same",
    "--names",
    "--lora",
    "export",
)  # need a trainer's checkpoints: tests/store/formats


def shown(page):
    """The commands in blocks of a page, and those in the text that name their arguments."""
    text = page.read_text()
    blocks = re.findall(r"```[a-z]*\n(.*?)```", text, re.DOTALL)
    lines = [line.strip() for block in blocks for line in block.replace("\\\n", " ").splitlines()]
    found = [re.split(r"\s+#", line.removeprefix("$ "))[0] for line in lines]
    rest = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    found += [
        " ".join(words.split())
        for words in re.findall(r"`(trajsoup [^`]*)`", rest)
        if len(words.split()) > 2 and not re.search(r"\b[A-Z_]{3,}\b|\.\.\.", words)
    ]
    parts = [part.strip() for command in found for part in command.split("&&")]
    return [part for part in parts if part.startswith("trajsoup ")]


COMMANDS = {page.name: shown(page) for page in PAGES if page.name not in GENERATED}


@pytest.fixture(scope="module")
def material(tmp_path_factory):
    """Runs of ten checkpoints, checkpoints by themselves, a soup file."""
    from tests.bowls import make_bowl, write_run

    folder, bowl = tmp_path_factory.mktemp("shown"), make_bowl()
    for name, seed in (("a", 1), ("b", 2), ("c", 3)):
        write_run(folder / "runs" / name, bowl, seed=seed, learning_rate=0.06, steps=500, every=50)
        shutil.copytree(folder / "runs" / name / "checkpoint-500", folder / name / "checkpoint-900")
    (folder / "soup.yaml").write_text("ingredients:\n- {path: a/checkpoint-900, weight: 0.5}\n"
                                      "- {path: b/checkpoint-900, weight: 0.5}\n")  # fmt: skip
    return folder


def make_way(command, material):
    """Remove what the command writes; put there what it reads."""
    study = material / "study.yaml"
    if command == "merge":
        shutil.rmtree(material / "soup", ignore_errors=True)
    elif command == "scan":
        study.unlink(missing_ok=True)
    elif command == "status":
        study.write_text(re.search(r"```yaml\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)[1])


@pytest.mark.parametrize("page", [name for name, commands in COMMANDS.items() if commands])
def test_every_command_on_a_page_works(page, material, monkeypatch):
    monkeypatch.chdir(material)
    for command in COMMANDS[page]:
        words = shlex.split(command)[1:]
        read_only = words[0] in LONG or any(word in command for word in (*ELSEWHERE, *OTHER_FORMATS))
        make_way(words[0], material)
        done = trajsoup(*words, *(["--help"] if read_only else []))
        assert done.code == 0, f"{page}: {command}\n{done.err}"


def test_the_commands_are_found():
    assert {"trajsoup doctor runs/a runs/b", "trajsoup verify soup"} <= set(COMMANDS["README.md"])
    assert sum(map(len, COMMANDS.values())) > 20
    assert set(GENERATED) <= {page.name for page in PAGES}


def test_an_option_that_does_not_exist_is_refused_even_with_help():
    assert trajsoup("run", "study.yaml", "--no-such-option", "--help").code == 2
