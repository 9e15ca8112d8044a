"""Names and shapes of one framework told in those of another: torchtitan, OLMo-core and Megatron to Hugging Face.

    checkpoint, rules -> renamed_tensors -> the same bytes under other names

A rule renames a tensor, and may take stacked layers apart, split fused matrices by rows, or put the rows of rotary heads in
order. All of it changes only where the numbers of a tensor are looked for: no weight is read, and none is changed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

from trajsoup.errors import CheckpointError, StudyError
from trajsoup.store.fields import At, read
from trajsoup.store.stored import Box, Stored, Tensor
from trajsoup.store.yaml_file import load_yaml

LISTED = 8  # names in a message
HEAD = "lm_head.weight"


class Split(StrEnum):
    """How a fused matrix is made of several."""

    HALVES = "halves"  # one after the other: gate and up
    QKV = "qkv"  # by groups of heads: queries, key, value of each


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """What becomes of the tensors with one name; `{n}` in it stands for a number."""

    source: Annotated[str, "The name in the checkpoint; {n} stands for a number."]
    to: Annotated[tuple[str, ...], "The new name, or one for each part; none at all leaves the tensor out."] = ()
    stacked: Annotated[bool, "The first axis counts layers, and {n} in the new name is the layer."] = False
    split: Annotated[Split | None, "How a fused matrix is taken apart: halves or qkv."] = None
    rope: Annotated[bool, "Rows of rotary heads lie in pairs, as Meta's do, and are put in halves."] = False

    @staticmethod
    def spelled_out(value: Any) -> Any:
        """`from` is a word of Python's; one new name is a list of one."""
        if not isinstance(value, dict):
            return value
        found = {"source" if key == "from" else key: inner for key, inner in value.items()}
        return {**found, "to": [found["to"]]} if isinstance(found.get("to"), str) else found


@dataclass(frozen=True, slots=True, kw_only=True)
class NameMap:
    """The rules of one framework, and the sizes that splitting needs."""

    name: str
    rules: tuple[Rule, ...]
    heads: int = 0
    groups: int = 0  # of queries that share a key and a value
    head_rows: int = 0

    def record(self) -> dict[str, Any]:
        """For soup.json: enough to do it again."""
        return {**asdict(self), "rules": [asdict(rule) for rule in self.rules]}

    @staticmethod
    def from_record(record: Mapping[str, Any]) -> NameMap:
        """What `record` wrote."""
        rules = (
            Rule(**{**rule, "to": tuple(rule["to"]), "split": rule["split"] and Split(rule["split"])})
            for rule in record["rules"]
        )
        return NameMap(**{**record, "rules": tuple(rules)})


def _rules(pairs: Mapping[str, str], **more: Any) -> tuple[Rule, ...]:
    return tuple(Rule(source=source, to=(to,), **more) for source, to in pairs.items())


_LAYER = "model.layers.{n}."
_TITAN = {
    "tok_embeddings.weight": "model.embed_tokens.weight",
    "layers.{n}.attention.wv.weight": _LAYER + "self_attn.v_proj.weight",
    "layers.{n}.attention.qkv_linear.wv.weight": _LAYER + "self_attn.v_proj.weight",
    "layers.{n}.attention.wo.weight": _LAYER + "self_attn.o_proj.weight",
    "layers.{n}.feed_forward.w1.weight": _LAYER + "mlp.gate_proj.weight",
    "layers.{n}.feed_forward.w3.weight": _LAYER + "mlp.up_proj.weight",
    "layers.{n}.feed_forward.w2.weight": _LAYER + "mlp.down_proj.weight",
    "layers.{n}.attention_norm.weight": _LAYER + "input_layernorm.weight",
    "layers.{n}.ffn_norm.weight": _LAYER + "post_attention_layernorm.weight",
    "norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
    "lm_head.weight": "lm_head.weight",
}
_TITAN_ROPE = {
    f"layers.{{n}}.attention.{inner}w{x}.weight": f"{_LAYER}self_attn.{x}_proj.weight"
    for inner in ("", "qkv_linear.")
    for x in "qk"
}
_TITAN_NORMS = {f"layers.{{n}}.attention.{x}_norm.weight": f"{_LAYER}self_attn.{x}_norm.weight" for x in "qk"}
_OLMO = {
    "embeddings.weight": "model.embed_tokens.weight",
    "blocks.{n}.attention.w_q.weight": _LAYER + "self_attn.q_proj.weight",
    "blocks.{n}.attention.w_k.weight": _LAYER + "self_attn.k_proj.weight",
    "blocks.{n}.attention.w_v.weight": _LAYER + "self_attn.v_proj.weight",
    "blocks.{n}.attention.w_out.weight": _LAYER + "self_attn.o_proj.weight",
    "blocks.{n}.attention.q_norm.weight": _LAYER + "self_attn.q_norm.weight",
    "blocks.{n}.attention.k_norm.weight": _LAYER + "self_attn.k_norm.weight",
    "blocks.{n}.feed_forward.w1.weight": _LAYER + "mlp.gate_proj.weight",
    "blocks.{n}.feed_forward.w2.weight": _LAYER + "mlp.down_proj.weight",
    "blocks.{n}.feed_forward.w3.weight": _LAYER + "mlp.up_proj.weight",
    "lm_head.norm.weight": "model.norm.weight",
    "lm_head.w_out.weight": "lm_head.weight",
}
_OLMO_BEFORE = {
    "blocks.{n}.attention_norm.weight": _LAYER + "input_layernorm.weight",
    "blocks.{n}.feed_forward_norm.weight": _LAYER + "post_attention_layernorm.weight",
}
_OLMO_AFTER = {
    "blocks.{n}.attention_norm.weight": _LAYER + "post_attention_layernorm.weight",
    "blocks.{n}.feed_forward_norm.weight": _LAYER + "post_feedforward_layernorm.weight",
}
_MEGATRON = {
    "self_attention.linear_proj.weight": _LAYER + "self_attn.o_proj.weight",
    "self_attention.linear_qkv.layer_norm_weight": _LAYER + "input_layernorm.weight",
    "input_layernorm.weight": _LAYER + "input_layernorm.weight",
    "self_attention.q_layernorm.weight": _LAYER + "self_attn.q_norm.weight",
    "self_attention.k_layernorm.weight": _LAYER + "self_attn.k_norm.weight",
    "mlp.linear_fc1.layer_norm_weight": _LAYER + "post_attention_layernorm.weight",
    "pre_mlp_layernorm.weight": _LAYER + "post_attention_layernorm.weight",
    "mlp.linear_fc2.weight": _LAYER + "mlp.down_proj.weight",
}
_MEGATRON_ENDS = {
    "embedding.word_embeddings.weight": "model.embed_tokens.weight",
    "decoder.final_layernorm.weight": "model.norm.weight",
    "output_layer.weight": "lm_head.weight",
}


def _megatron() -> tuple[Rule, ...]:
    found = [*_rules(_MEGATRON_ENDS)]
    for place, stacked in (("decoder.layers.", True), ("decoder.layers.{n}.", False)):
        found += _rules({place + source: to for source, to in _MEGATRON.items()}, stacked=stacked)
        for end in ("weight", "bias"):
            qkv = tuple(f"{_LAYER}self_attn.{x}_proj.{end}" for x in "qkv")
            fused = f"{place}self_attention.linear_qkv.{end}"
            found.append(Rule(source=fused, to=qkv, stacked=stacked, split=Split.QKV))
        gates = (_LAYER + "mlp.gate_proj.weight", _LAYER + "mlp.up_proj.weight")
        found.append(Rule(source=f"{place}mlp.linear_fc1.weight", to=gates, stacked=stacked, split=Split.HALVES))
    return tuple(found)


MAPS: Mapping[str, tuple[Rule, ...]] = {
    "torchtitan Llama": (*_rules(_TITAN), *_rules(_TITAN_ROPE, rope=True)),
    "torchtitan Qwen3": _rules(_TITAN | _TITAN_ROPE | _TITAN_NORMS),  # its heads lie in halves as Hugging Face's do
    "OLMo-core, norms before": _rules(_OLMO | _OLMO_BEFORE),
    "OLMo-core, norms after": _rules(_OLMO | _OLMO_AFTER),
    "Megatron GPT": _megatron(),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class _NameFile:
    """A user's own map."""

    names: Annotated[tuple[Rule, ...], "Add `- {from: ..., to: ...}` lines."]


def load_rules(path: Path) -> tuple[Rule, ...]:
    """The rules of a YAML file: `names: [{from: "layers.{n}.wq", to: "model.layers.{n}.q"}, ...]`."""
    listed = read(_NameFile, load_yaml(path), where=At(path, path.parent)).names
    if not listed:
        raise StudyError(f"{path} lists no names: add `- {{from: ..., to: ...}}` lines")
    return listed


def name_map(
    stored: Stored, like: Stored, config: Mapping[str, Any], *, rules: Sequence[Rule] | None, where: str
) -> NameMap | None:
    """The map under which a checkpoint has the names of `like`, a Hugging Face folder with that `config`.

    None if it has them already. `rules` are the user's own; without them those of the frameworks known here are tried.
    """
    if rules is None and stored.tensors.keys() == like.tensors.keys():
        return None
    heads = int(config.get("num_attention_heads") or 0)
    sizes = {
        "heads": heads,
        "groups": int(config.get("num_key_value_heads") or heads),
        "head_rows": int(config.get("head_dim") or (int(config.get("hidden_size") or 0) // heads if heads else 0)),
    }
    tried = {"the file of names": tuple(rules)} if rules is not None else MAPS
    maps = [NameMap(name=name, rules=listed, **sizes) for name, listed in tried.items()]
    best = min(maps, key=lambda m: len(_unnamed(stored, m)))
    if unnamed := _unnamed(stored, best):
        raise CheckpointError(
            f"{where}: no map names {_list(unnamed)} ({best.name} is nearest): write the names into a YAML file and pass "
            "it as --names"
        )
    fitting = [m for m in maps if not _unnamed(stored, m)]
    if config.get("tie_word_embeddings") and HEAD not in like.tensors:
        fitting += [
            replace(m, rules=tuple(replace(r, to=()) if r.to == (HEAD,) else r for r in m.rules)) for m in fitting
        ]
    wanted = {*like.tensors}
    outcomes = [{name for name, _ in _targets(stored, m)} for m in fitting]
    nearest, outcome = min(zip(fitting, outcomes, strict=True), key=lambda pair: len(pair[1] ^ wanted))
    if outcome == wanted:
        return nearest
    extra, lost = outcome - wanted, wanted - outcome
    what = [f"{_list(sorted(extra))} not in it" if extra else "", f"{_list(sorted(lost))} missing" if lost else ""]
    raise CheckpointError(
        f"{where} under the names of {nearest.name} is not like the folder of --like: {' and '.join(filter(None, what))}: "
        "name a folder of this architecture, or pass --names"
    )


def renamed_tensors(stored: Stored, names: NameMap) -> dict[str, Tensor]:
    """The tensors of a checkpoint under the names of a map."""
    found: dict[str, Tensor] = {}
    for name, tensor in _targets(stored, names, made=True):
        if name in found:
            raise CheckpointError(f"two tensors would be named {name!r}: the map of names is not one to one")
        assert tensor is not None
        found[name] = tensor
    return found


def _unnamed(stored: Stored, names: NameMap) -> list[str]:
    return [name for name in stored.tensors if _rule(name, names.rules) is None]


def _rule(name: str, rules: Iterable[Rule]) -> tuple[Rule, str] | None:
    """The rule for a name, and the number in it."""
    template = re.sub(r"(?<=\.)\d+(?=\.)", "{n}", name, count=1)
    number = next(iter(re.findall(r"(?<=\.)\d+(?=\.)", name)), "")
    for rule in rules:
        if rule.source in (name, template):
            return rule, number
    return None


def _targets(stored: Stored, names: NameMap, *, made: bool = False) -> Iterable[tuple[str, Tensor | None]]:
    """New names, and with `made` their tensors."""
    for name, tensor in stored.tensors.items():
        found = _rule(name, names.rules)
        if found is None:
            raise CheckpointError(f"the map of names has no rule for {name!r}")
        rule, number = found
        if not rule.to:
            continue
        if rule.stacked and not tensor.shape:
            raise CheckpointError(f"tensor {name!r} is one number, not stacked layers")
        layers = range(tensor.shape[0]) if rule.stacked else [None]
        for layer in layers:
            one = tensor if layer is None or not made else _unstacked(tensor, layer, name)
            parts = _parts(one, rule, names, name) if made else [None] * len(rule.to)
            for to, part in zip(rule.to, parts, strict=True):
                new = to.replace("{n}", number if layer is None else str(layer))
                yield new, part if part is None or not rule.rope else part._replace(head_rows=names.head_rows)


def _parts(tensor: Tensor, rule: Rule, names: NameMap, name: str) -> list[Tensor]:
    if rule.split is None:
        if len(rule.to) != 1:
            raise CheckpointError(f"the rule for {name!r} has {len(rule.to)} new names and no split: say halves or qkv")
        return [tensor]
    rows = tensor.shape[0] if tensor.shape else 0
    if rule.split is Split.HALVES:
        ranges = [[(0, rows // 2)], [(rows // 2, rows)]]
    else:
        each = names.heads // names.groups if names.groups else 0
        size = names.head_rows
        if not each or rows != names.groups * (each + 2) * size:
            raise CheckpointError(
                f"{name!r} of {rows:,} rows is not made of {names.groups} groups of {each} queries, a key and a value of "
                f"{size} rows: check num_attention_heads, num_key_value_heads and head_dim in the config.json of --like"
            )
        begins = [group * (each + 2) * size for group in range(names.groups)]
        ranges = [
            [(begin, begin + each * size) for begin in begins],
            [(begin + each * size, begin + (each + 1) * size) for begin in begins],
            [(begin + (each + 1) * size, begin + (each + 2) * size) for begin in begins],
        ]
    if len(ranges) != len(rule.to):
        raise CheckpointError(f"the rule for {name!r} splits into {len(ranges)} parts and names {len(rule.to)}")
    return [_rows(tensor, listed, name) for listed in ranges]


def _rows(tensor: Tensor, ranges: Sequence[tuple[int, int]], name: str) -> Tensor:
    """Some rows of a tensor, one range after another."""
    if tensor.made is not None:
        raise CheckpointError(
            f"tensor {name!r} has FP8 scales or an adapter and cannot be taken apart: merge it as it is"
        )
    boxes: list[Box] = []
    position = 0
    for low, high in ranges:
        for box in tensor.boxes:
            begin, end = max(low, box.start[0]), min(high, box.start[0] + box.shape[0])
            if begin >= end:
                continue
            if box.codec is not None:
                raise CheckpointError(f"tensor {name!r} is stored encoded and cannot be taken apart: save it as it is")
            row_bytes = box.nbytes // box.shape[0]
            boxes.append(
                box._replace(
                    offset=box.offset + (begin - box.start[0]) * row_bytes,
                    nbytes=(end - begin) * row_bytes,
                    start=(begin - low + position, *box.start[1:]),
                    shape=(end - begin, *box.shape[1:]),
                )
            )
        position += high - low
    return tensor._replace(shape=(position, *tensor.shape[1:]), boxes=_joined(boxes, tensor))


def _joined(boxes: list[Box], tensor: Tensor) -> tuple[Box, ...]:
    """Whole rows that lie together in the file and in the tensor as one box."""
    found: list[Box] = []
    for box in boxes:
        last = found[-1] if found else None
        if (
            last is not None
            and last.shape[1:] == box.shape[1:] == tensor.shape[1:]
            and (last.file, last.offset + last.nbytes) == (box.file, box.offset)
            and last.start[0] + last.shape[0] == box.start[0]
        ):
            shape = (last.shape[0] + box.shape[0], *box.shape[1:])
            found[-1] = last._replace(nbytes=last.nbytes + box.nbytes, shape=shape)
        else:
            found.append(box)
    return tuple(found)


def _unstacked(tensor: Tensor, layer: int, name: str) -> Tensor:
    one = _rows(tensor, [(layer, layer + 1)], name)
    boxes = tuple(box._replace(start=box.start[1:], shape=box.shape[1:]) for box in one.boxes)
    return one._replace(shape=one.shape[1:], boxes=boxes)


def _list(names: Sequence[str]) -> str:
    more = f" and {len(names) - LISTED} more" if len(names) > LISTED else ""
    return ", ".join(map(repr, names[:LISTED])) + more
