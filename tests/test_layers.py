"""The layers of the design hold: each imports only those above it, and only lm/ knows torch."""

from __future__ import annotations

import ast
import functools
import subprocess
import sys
from pathlib import Path

import pytest

import trajsoup

ROOT = Path(trajsoup.__file__).parent
LAYERS = [
    "errors",
    "core",
    "store",
    "engine",
    "merge",
    "lm",
    "study",
    "report",
    "cli",
    "integrations",
]  # each may import those before it
TRAINING = {"torch", "transformers", "accelerate", "tokenizers", "datasets", "safetensors"}
MODULES = sorted(ROOT.rglob("*.py"))


@functools.cache
def nodes_of(path: Path) -> tuple[ast.AST, ...]:
    """Everything in a module, parsed once for all tests."""
    return tuple(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))


def layer_of(path: Path) -> str | None:
    """The layer of a file; None for the package's own front (its __init__ and __main__)."""
    first = path.relative_to(ROOT).parts[0].removesuffix(".py")
    return None if first in ("__init__", "__main__") else first


def imported(path: Path) -> set[str]:
    """Full names of everything a file imports, wherever in the file: `from a.b import c` is a.b and a.b.c."""
    package = ("trajsoup", *path.relative_to(ROOT).parts[:-1])
    found: set[str] = set()
    for node in nodes_of(path):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else ()
            module = ".".join([*base, *([node.module] if node.module else [])])
            found |= {module} | {f"{module}.{alias.name}" for alias in node.names}
    return found


def layers_imported(path: Path) -> set[str]:
    return {name.split(".")[1] for name in imported(path) if name.startswith("trajsoup.")} & set(LAYERS)


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_a_module_imports_only_its_own_layer_and_those_above(path):
    layer = layer_of(path)
    if layer is None:
        return
    assert layer in LAYERS, f"{name_of(path)} belongs to no layer"
    allowed = set(LAYERS[: LAYERS.index(layer) + 1])
    assert layers_imported(path) <= allowed


@pytest.mark.parametrize("path", [p for p in MODULES if layer_of(p) == "core"], ids=name_of)
def test_core_is_pure_mathematics(path):
    tops = {name.split(".")[0] for name in imported(path)}
    assert tops <= sys.stdlib_module_names | {"numpy", "scipy", "trajsoup"}
    assert not tops & {"os", "pathlib", "io", "time", "datetime", "random", "subprocess", "socket", "tempfile"}


@pytest.mark.parametrize("path", [p for p in MODULES if layer_of(p) != "lm"], ids=name_of)
def test_training_libraries_stay_in_the_language_model_layer(path):
    assert not {name.split(".")[0] for name in imported(path)} & TRAINING


PARSERS = {  # who parses, and why it is not the one loader
    "msgspec.json.decode": {
        "store/json_file.py",
        "store/formats/header_json.py",  # an index of a million names; what it cannot take goes to the one loader
    },
    "json.loads": {
        "store/json_file.py",
        "errors.py",  # pip's own note on where the package came from; the lowest layer imports nothing
        "store/formats/safetensors.py",  # a header in which a name stands twice is refused, as the library does
    },
    "yaml.load": {"store/yaml_file.py"},
}


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_one_loader_parses_json_and_one_yaml(path):
    called = {ast.unparse(n.func) for n in nodes_of(path) if isinstance(n, ast.Call)}
    for name in called & {"json.loads", "json.load", "yaml.load", "yaml.safe_load", "msgspec.json.decode"}:
        assert name_of(path) in PARSERS.get(name, {"store/json_file.py"})


READERS = {  # who opens files, and why it is not store/regular.py
    "store/regular.py",
    "store/remote.py",  # of objects in a store
    "store/lock.py",  # of the kernel, in /proc
    "store/claim.py",
    "lm/cpu_isa.py",
    "report/page.py",  # of this package
    "errors.py",  # of this package's metadata
}
WRITERS = {  # who opens descriptors to write
    "store/confined.py",
    "store/publish.py",  # folders, to fsync and to lock them
    "engine/sinks.py",
    "engine/shards.py",
}


INTO_THEIR_OWN = {  # who writes whole files without store/publish.py or store/confined.py, and where
    "lm/writing.py",  # a hidden folder that was made for it and is published as a whole
    "lm/tokenizer.py",
    "merge/provenance.py",
    "report/export.py",  # below a name that was checked by `inside`, and a temporary folder
    "store/remote.py",  # an object in a store
    "store/upload.py",
    "study/publish.py",
    "study/train/sums.py",  # the folder that `publishing` made
}


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_files_are_opened_for_reading_in_one_place(path):
    for call in (n for n in nodes_of(path) if isinstance(n, ast.Call)):
        name = ast.unparse(call.func)
        if name == "os.open":
            assert name_of(path) in READERS | WRITERS
        elif name.endswith((".read_bytes", ".read_text")) or name == "open":
            assert name_of(path) in READERS, f"line {call.lineno}: use store/regular.py"
        elif name.endswith(".open"):
            mode = next((a.value for a in call.args if isinstance(a, ast.Constant)), "")
            reads = str(mode).startswith("r") or (not mode and any(k.arg == "encoding" for k in call.keywords))
            assert not reads or name_of(path) in READERS, f"line {call.lineno}: use store/regular.py"


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_files_are_written_through_no_link(path):
    for call in (n for n in nodes_of(path) if isinstance(n, ast.Call)):
        name = ast.unparse(call.func)
        modes = [a.value for a in (*call.args[:2], *(k.value for k in call.keywords)) if isinstance(a, ast.Constant)]
        opened = name == "open" or (name.endswith(".open") and name != "os.open")
        if name.endswith((".write_text", ".write_bytes")) or (opened and {str(m)[:1] for m in modes} & {"w", "a"}):
            assert name_of(path) in INTO_THEIR_OWN, f"line {call.lineno}: use write_atomic, or store/confined.py"


@pytest.mark.parametrize("path", [p for p in MODULES if layer_of(p) == "cli"], ids=name_of)
def test_what_a_command_prints_passes_one_place(path):
    called = {ast.unparse(n.func) for n in nodes_of(path) if isinstance(n, ast.Call)}
    assert not called & {"typer.echo", "click.echo", "print"} or path.name == "console.py"


def test_the_reading_of_imports_sees_what_it_must():
    blend = ROOT / "engine" / "blend.py"
    assert {"core", "store", "engine", "errors"} == layers_imported(blend)
    assert "numba" in {name.split(".")[0] for name in imported(ROOT / "engine" / "kernels.py")}  # inside a function


BLOCKED = """
import sys
for name in {blocked!r}:
    sys.modules[name] = None  # importing it now fails
import trajsoup
import trajsoup.core.soup
import trajsoup.engine.blend
import trajsoup.engine.sinks
import trajsoup.store.checkpoint
import trajsoup.store.publish
import trajsoup.cli.app
"""


def run(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)


def test_the_merge_path_imports_without_torch_transformers_and_numba():
    done = run(BLOCKED.format(blocked=[*sorted(TRAINING), "numba", "llvmlite", "scipy"]))
    assert done.returncode == 0, done.stderr


def test_the_merge_path_loads_nothing_heavy():
    done = run(BLOCKED.format(blocked=[]) + "print(*sorted(m for m in sys.modules if '.' not in m))")
    assert done.returncode == 0, done.stderr
    assert not set(done.stdout.split()) & (TRAINING | {"numba", "llvmlite", "scipy"})


def test_without_numba_the_kernels_are_numpys_and_a_blend_works(tmp_path):
    code = BLOCKED.format(blocked=["numba", "llvmlite", "torch", "safetensors"]) + (
        "import json, struct\n"
        "from pathlib import Path\n"
        "from trajsoup.core.soup import Row\n"
        "from trajsoup.engine.blend import blend\n"
        "from trajsoup.engine.kernels import accelerated\n"
        "from trajsoup.engine.layout import make_layout\n"
        "from trajsoup.engine.sinks import MemorySink\n"
        "from trajsoup.store.checkpoint import open_checkpoint\n"
        "assert not accelerated()\n"
        "found = {}\n"
        "for key, number in (('a', 1.0), ('b', 2.0)):\n"
        "    raw = json.dumps({'w': {'dtype': 'F32', 'shape': [1], 'data_offsets': [0, 4]}}).encode()\n"
        "    path = Path(sys.argv[1], key + '.safetensors')\n"
        "    path.write_bytes(struct.pack('<Q', len(raw)) + raw + struct.pack('<f', number))\n"
        "    found[key] = open_checkpoint(path)\n"
        "layout = make_layout(found['a'])\n"
        "sink = MemorySink(layout)\n"
        "blend(found, [Row(name='soup', weights={'a': 0.5, 'b': 0.5})], [sink], layout=layout)\n"
        "print(sink.tensors()['w'][0])\n"
    )
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, timeout=120)
    assert done.stdout == "1.5\n", done.stderr


def runs_into_itself(graph: dict[str, set[str]], start: str) -> list[str] | None:
    """A way from a module back to itself, if there is one."""
    ways, seen = [[start]], set()
    while ways:
        way = ways.pop()
        for name in graph[way[-1]]:
            if name == start:
                return [*way, name]
            if name not in seen:
                seen.add(name)
                ways.append([*way, name])
    return None


def test_no_module_imports_itself_by_way_of_others_not_even_inside_a_function():
    modules = {
        ".".join(("trajsoup", *p.relative_to(ROOT).with_suffix("").parts)).removesuffix(".__init__"): p for p in MODULES
    }
    del modules["trajsoup"]  # the front, which names everything
    graph = {name: (imported(path) & modules.keys()) - {name} for name, path in modules.items()}
    packages = {name for name, path in modules.items() if path.name == "__init__.py"}
    for needed in graph.values():  # `from a.b import c`, where c is a module, needs c and not all that a.b names
        needed -= {p for p in packages & needed if any(other.startswith(f"{p}.") for other in needed)}
    for name in graph:
        assert (way := runs_into_itself(graph, name)) is None, " -> ".join(way)
