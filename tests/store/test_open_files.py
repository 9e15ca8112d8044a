import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from trajsoup.store.open_files import OpenFiles, most_open

ROOT = Path(__file__).parents[2]


@pytest.fixture
def files(monkeypatch):
    monkeypatch.setattr("trajsoup.store.open_files.most_open", lambda share: 4)
    found = OpenFiles(share=1)
    yield found
    found.close()


def test_the_file_used_longest_ago_is_closed_first_and_one_in_use_never(files, tmp_path):
    for i in range(6):
        (tmp_path / str(i)).write_text(str(i))
    opened = []

    def take(i):
        def open_it():
            opened.append(i)
            return os.open(tmp_path / str(i), os.O_RDONLY)

        return files.take(i, open_it)

    held = take(0)
    for i in (1, 2, 3, 4, 5):
        take(i)
        files.give(i)
    assert os.read(held, 1) == b"0"  # still open
    files.give(0)
    for i in (5, 4, 0):
        take(i)
        files.give(i)
    assert opened == [0, 1, 2, 3, 4, 5]  # these three were open
    take(1)
    files.give(1)
    assert opened[-1] == 1  # and this one was closed


def test_the_share_is_of_what_the_process_may_open():
    assert most_open(0.0) == 4
    assert 4 <= most_open(0.125) <= most_open(0.5)


def test_24_ingredients_of_200_shards_are_merged_with_256_open_files(tmp_path):
    code = """
        import resource, sys
        from pathlib import Path
        import numpy as np
        from tests.plain_checkpoints import write_plain
        from trajsoup.merge.make import make_soup
        from trajsoup.merge.plan import mean_row, plan_row
        from trajsoup.merge.verify import verify_soup

        resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))
        folder = Path(sys.argv[1])
        tensors = {f"t{i:03}": np.full(2, i, "f4") for i in range(200)}
        for k in range(24):
            write_plain(folder / f"c{k}", {name: t + k for name, t in tensors.items()}, shards=200)
        plan = plan_row(mean_row([folder / f"c{k}" for k in range(24)]))
        assert len(plan.layout.files) == 200
        make_soup(plan, folder / "soup")
        print(verify_soup(folder / "soup", full=True).values)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), str(tmp_path)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"},
        capture_output=True,
        text=True,
    )
    assert done.stdout == "400\n", done.stderr[-2000:]
