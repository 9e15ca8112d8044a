"""sha256 of every file below a folder, by its place in it."""

from pathlib import Path

from trajsoup.store.digest import sha256_file


def digests(folder):
    folder = Path(folder)
    return {
        f"{folder.name}/{p.relative_to(folder).as_posix()}": sha256_file(p) for p in folder.rglob("*") if p.is_file()
    }
