"""What a soup is made of, written into it: soup.json for programs, README.md for people.

Nothing in the record depends on the clock, so the same merge gives the same bytes.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from trajsoup import __version__
from trajsoup.core.methods.asking import Promise
from trajsoup.core.pool import Candidate, Unit
from trajsoup.core.screening import Verdict
from trajsoup.core.soup import Row
from trajsoup.engine.layout import Layout
from trajsoup.errors import StudyError
from trajsoup.merge.choice import Choice
from trajsoup.store.checkpoint import INDEX, MOST_SIDE_BYTES, Checkpoint
from trajsoup.store.digest import Algorithm, sha256_file
from trajsoup.store.fp8 import CONFIG as QUANTIZATION
from trajsoup.store.hub import is_hub, is_repository, repository_below
from trajsoup.store.json_file import json_text, load_json
from trajsoup.store.names import NameMap
from trajsoup.store.regular import copy_small, read_words
from trajsoup.store.remote import Place
from trajsoup.store.shown import shown_name
from trajsoup.store.yaml_file import decode_yaml

FORMAT = "trajsoup/soup/1"
RECORD = "soup.json"
TRAINERS_OWN = ("metadata.json", "common.pt")  # of Megatron: what its loader reads beside the weights


@dataclass(frozen=True, slots=True, kw_only=True)
class Ingredient:
    """One checkpoint in the soup."""

    path: str
    weight: float
    candidate: Candidate | None
    files: Mapping[str, str | None]  # name -> digest, None where hashing was switched off
    algorithm: Algorithm = Algorithm.BLAKE3  # of the digests


@dataclass(frozen=True, slots=True, kw_only=True)
class Provenance:
    """Everything that soup.json says."""

    row: Row
    ingredients: tuple[Ingredient, ...]
    files: Mapping[str, str]
    layout: Layout
    template: Checkpoint
    choice: Choice | None = None
    verdicts: tuple[Verdict, ...] = ()
    promise: Promise | None = None
    exact_from: str | None = None
    side_files: Mapping[str, str] | None = None
    names: NameMap | None = None
    state: Checkpoint | None = None  # whose optimizer and other state of the trainer is in the output
    policy: Mapping[str, Any] | None = None  # what became of which tensors
    base: str | None = None  # into which the ingredients, LoRA adapters, were merged
    quantization: Any = None  # quantization_config of the ingredients
    requantised: Mapping[str, Any] | None = None  # what rounding to FP8 lost; None where there is none in the output

    @property
    def unit(self) -> Unit | None:
        """What positions are counted in; None for explicit ingredients, whose positions nobody knows."""
        return next((i.candidate.unit for i in self.ingredients if i.candidate), None)

    def record(self) -> dict[str, Any]:
        """The content of soup.json."""
        return {
            "format": FORMAT,
            "trajsoup_version": __version__,
            "soup": self.row.name,
            "choice": None if self.choice is None else _done(self.choice),
            **({} if self.promise is None else {"promise": asdict(self.promise)}),
            "arithmetic": "fp32 sum of 16-bit tensors divided once, fp64 for wider ones; rounded to nearest even"
            if self.row.uniform
            else "fp64 weighted sum, rounded to nearest even once",
            "uniform": self.row.uniform,
            **({} if self.row.mean_of is None else {"mean_of": self.row.mean_of}),
            "position_unit": self.unit,
            "ingredients": [_ingredient_record(i) for i in self.ingredients],
            "groups": None if self.row.groups is None else {g: dict(w) for g, w in self.row.groups.items()},
            "exact_from": self.exact_from,
            "screen": [{**_in_unit(asdict(v), v.unit), "undecided": v.undecided} for v in self.verdicts],
            "template": str(self.template.path),
            "names": None if self.names is None else self.names.record(),
            "lora_base": self.base,
            "policy": self.policy,
            "left_out": _left_out(self.template) if self.state is None else {},
            "output": {
                "format": "safetensors" if self.layout.listing is None else self.template.format.name,
                "optimizer_state": "absent" if self.state is None else str(self.state.path),
                "requantised": self.requantised,
                "bytes": self.layout.nbytes,
                "files": {file.name: self.files.get(file.name) for file in self.layout.files},
                "side_files": dict(self.side_files or {}),
            },
        }


def write_side_files(provenance: Provenance, folder: Path) -> None:
    """Copy the side files and write index and model card into the output: before the first weight is read, so that what
    is wrong with them is known then. Of the ingredients' hashes nothing is said yet."""
    for relative in provenance.template.side_files():
        target = folder / relative
        target.parent.mkdir(parents=True, exist_ok=True)
        copy_small(provenance.template.folder / relative, target, limit=MOST_SIDE_BYTES)
    _say_dtype(folder / "config.json", provenance)
    _say_quantization(folder / "config.json", provenance)
    if provenance.layout.listing is not None:
        name, content = provenance.layout.listing
        (folder / name).write_bytes(content)
        for copy in provenance.layout.copies:
            copy.write(folder)
        for beside in TRAINERS_OWN:
            source = (provenance.state or provenance.template).folder / beside
            if source.is_file():
                (folder / beside).unlink(missing_ok=True)
                copy_small(source, folder / beside, limit=MOST_SIDE_BYTES)
    index = provenance.layout.index()
    if index is not None:
        (folder / INDEX).write_text(json.dumps(index, indent=2) + "\n", encoding="utf-8")
    (folder / "README.md").write_text(model_card(provenance), encoding="utf-8")


def write_record(provenance: Provenance, folder: Path) -> Provenance:
    """Write soup.json into the output, which holds everything else; return what was recorded."""
    weights = {file.name for file in provenance.layout.files}
    side = {
        str(path.relative_to(folder)): sha256_file(path)
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name not in weights
    }
    provenance = replace(provenance, side_files=side)
    (folder / RECORD).write_text(json_text(provenance.record()) + "\n", encoding="utf-8")
    return provenance


def model_card(provenance: Provenance) -> str:
    """README.md of the output: what it is, what is in it, how to check it."""
    head = _head_of_card(provenance.template)
    used = [i for i in provenance.ingredients if i.weight]
    branches = {i.candidate.branch for i in used if i.candidate}
    count = provenance.row.mean_of or len(used)
    what = f"`{provenance.row.name}` of {count} checkpoints" + (f" from {len(branches)} branches" if branches else "")
    lines = [
        "---",
        yaml.safe_dump(head, sort_keys=False, allow_unicode=True).strip(),
        "---",
        "",
        "# A soup of checkpoints",
        "",
        f"This model is the {what}, averaged by trajsoup {__version__}: same architecture, tokenizer and inference cost as",
        "each ingredient.",
        "",
        f"| ingredient | branch | {provenance.unit or Unit.TOKENS} | weight | validation loss | accuracy |",
        "|---|---|---:|---:|---:|---:|",
    ]
    for i in used:
        c = i.candidate
        cells = [Path(i.path).name] + (
            [c.branch, f"{c.tokens:,}", f"{i.weight:.6g}", _score(c.val_loss), _score(c.accuracy)]
            if c
            else ["", "", f"{i.weight:.6g}", "", ""]
        )
        lines.append(f"| {' | '.join(shown_name(cell).replace('|', chr(92) + '|') for cell in cells)} |")
    if provenance.row.groups:
        lines += [
            "",
            f"{len(provenance.row.groups)} groups of tensors have weights of their own: `{RECORD}` lists them.",
        ]
    if provenance.verdicts:
        lines += [
            "",
            f"Compatibility screen (relative training-loss gap to the baseline at the same {provenance.unit}):",
            "",
        ]
        lines += [f"- {v.branch}: {v.gap} at {v.tokens:,} {v.unit}, {v.word}" for v in provenance.verdicts]
    if provenance.choice is not None:
        said = [f"{name} {value}" for name, value in _done(provenance.choice).items() if value]
        lines += ["", f"Recipe: {', '.join(said)}."]
    lines += [
        "",
        f"`{RECORD}` records every ingredient with its digest; `trajsoup verify .` checks this folder against it.",
        "",
    ]
    return "\n".join(lines)


def _say_dtype(config: Path, provenance: Provenance) -> None:
    """After a conversion, config.json must name the new dtype, or loaders convert it back."""
    names = {"BF16": "bfloat16", "F16": "float16", "F32": "float32", "F64": "float64"}
    before = {t.dtype for t in provenance.template.tensors.values()} & names.keys()
    after = {t.dtype for file in provenance.layout.files for t in file.header.tensors.values()} & names.keys()
    if before == after or len(after) != 1 or not config.is_file():
        return
    text = read_words(config)
    renamed = re.sub(r'("(?:torch_)?dtype"\s*:\s*)"\w+"', rf'\1"{names[after.pop()]}"', text)
    config.write_text(renamed, encoding="utf-8")


def _say_quantization(config: Path, provenance: Provenance) -> None:
    """config.json says how FP8 is stored where the output is FP8, and nothing of it where it is not."""
    if provenance.quantization is None or not config.is_file():
        return
    kept = {key: value for key, value in load_json(config).items() if key != QUANTIZATION}
    fp8 = {} if provenance.layout.wide is None else {QUANTIZATION: provenance.quantization}
    config.write_text(json.dumps(kept | fp8, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def _done(choice: Choice) -> dict[str, Any]:
    """The choice with what was left open filled in: the method and the selection that were really used."""
    settings = choice.method.settings(choice.params)
    return {**asdict(choice), "strategy": choice.method.name, "select": choice.rule, "params": settings}


_NOT_SAID = ("key", "train_error", "train_pieces")  # of an ingredient: its path stands there, errors with the screen


def _ingredient_record(ingredient: Ingredient) -> dict[str, Any]:
    c = ingredient.candidate
    known = {} if c is None else {k: v for k, v in _in_unit(asdict(c), c.unit).items() if k not in _NOT_SAID}
    return {"path": ingredient.path, "weight": ingredient.weight, **known, ingredient.algorithm: dict(ingredient.files)}


def _left_out(template: Checkpoint) -> dict[str, int]:
    """What the ingredients hold beside weights, and the soup does not: how many entries under each word."""
    return dict(Counter(name.split(".")[0] for name in template.left_out))


def _in_unit(fields: dict[str, Any], unit: Unit) -> dict[str, Any]:
    """The fields with `tokens` under the name of what it counts."""
    names = {"tokens": unit.value, "window_tokens": f"window_{unit.value}"}
    return {names.get(key, key): value for key, value in fields.items() if key != "unit"}


def _head_of_card(template: Checkpoint) -> dict[str, Any]:
    """What a card begins with: what the template's own card says of its licence, and what the soup is."""
    inherited = _inherited(template.folder)
    base = _base_model(template, inherited.pop("base_model", None))
    library = {"library_name": "transformers"} if template.config else {}
    return library | inherited | ({} if base is None else {"base_model": base}) | {"tags": ["trajectory-soup", "merge"]}


def _base_model(template: Checkpoint, on_card: object) -> str | None:
    """The name on the Hub of what the ingredients started from, as far as place, config or card tell it."""
    if is_hub(template.path):
        return repository_below(template.path)
    config = template.folder / "config.json"
    names = [load_json(config).get("_name_or_path") if config.is_file() else None, on_card]
    return next((n for n in names if isinstance(n, str) and is_repository(n) and not Path(n).exists()), None)


def _inherited(folder: Place) -> dict[str, Any]:
    """Licence fields of the fork point's model card: they bind the soup too."""
    with contextlib.suppress(StudyError):  # `unread_card` says so
        return _front_matter(folder)
    return {}


def unread_card(folder: Place) -> str | None:
    """What is wrong with the head of a model card; None: nothing is."""
    try:
        _front_matter(folder)
    except StudyError as error:
        return str(error)
    return None


def _front_matter(folder: Place) -> dict[str, Any]:
    card = folder / "README.md"
    if not card.is_file():
        return {}
    parts = read_words(card, errors="replace").split("---", 2)
    data = decode_yaml(parts[1], where=card) if len(parts) == 3 and not parts[0].strip() and parts[1].strip() else {}
    keep = ("license", "license_name", "license_link", "language", "library_name", "pipeline_tag", "base_model")
    found = {key: data[key] for key in keep if key in data}
    return {key: value for key, value in found.items() if isinstance(value, str) or _are_words(value)}


def _are_words(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(word, str) for word in value)


def _score(value: float | None) -> str:
    return "" if value is None else f"{value:.4f}"
