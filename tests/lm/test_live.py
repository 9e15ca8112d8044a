import threading

import pytest
import torch

from tests import fp8
from tests.checkpoints import write_checkpoint
from tests.lm.tiny_models import llama_config, make_model, moe_config, save_checkpoints, shared_expert_config
from tests.runs import load
from tests.toy_format import write_toy
from trajsoup.core.soup import Row
from trajsoup.engine.blend import blend
from trajsoup.engine.layout import make_layout
from trajsoup.engine.sinks import FileSink
from trajsoup.errors import CheckpointError, MismatchError, NonfiniteError, ScoreError
from trajsoup.lm import live
from trajsoup.lm.images import new_image
from trajsoup.lm.live import load_model, stream_rows
from trajsoup.store.checkpoint import open_checkpoint
from trajsoup.store.fp8 import CONFIG as QUANTIZATION

ROWS = [
    Row(name="first", weights={"c1": 1.0}),
    Row(name="mean", weights={"c1": 1 / 3, "c2": 1 / 3, "c3": 1 / 3}),
    Row(name="weighted", weights={"c1": 0.7, "c3": 0.3}),
]
IDS = torch.arange(20)[None] * 3 % 64


def written(checkpoints, row, folder):
    """The row as a checkpoint on disk, loaded with transformers: what streaming must equal."""
    first = checkpoints["c1"]
    layout = make_layout(first)
    folder.mkdir()
    with FileSink(folder, layout) as sink:
        blend(checkpoints, [row], [sink], layout=layout)
        sink.finish()
    (folder / "config.json").write_bytes((first.folder / "config.json").read_bytes())
    return load_model(open_checkpoint(folder))


CONFIGS = {
    "llama": llama_config(),
    "tied llama": llama_config(tied=True),
    "mixture of experts": moe_config(),
    "untied mixture": moe_config(tied=False),
    "mixture with a shared expert": shared_expert_config(),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("memory_bytes", [1, 1 << 30], ids=["straight into the parameters", "by images"])
@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
def test_a_streamed_row_is_bit_for_bit_the_model_that_was_written_and_loaded(tmp_path, config, memory_bytes, dtype):
    checkpoints = save_checkpoints(tmp_path, config, count=3, dtype=dtype)
    model = make_model(config, seed=9)
    for row in stream_rows(model, checkpoints, ROWS, memory_bytes=memory_bytes):
        expected = written(checkpoints, row, tmp_path / row.name)
        for (name, mine), theirs in zip(model.named_parameters(), expected.parameters(), strict=True):
            assert torch.equal(mine, theirs), name
        with torch.inference_mode():
            assert torch.equal(model(IDS).logits, expected(IDS).logits)


def test_checkpoints_in_another_format_are_loaded_and_streamed_to_the_same_bits(toy_format, tmp_path):
    plain = save_checkpoints(tmp_path, llama_config(), count=3)
    boxed = {}
    for number, (key, checkpoint) in enumerate(plain.items()):
        files = {"config.json": (checkpoint.folder / "config.json").read_text()}
        folder = write_toy(tmp_path / f"boxed-{key}", load(checkpoint.folder), axis=number % 2, files=files)
        boxed[key] = open_checkpoint(folder)
    model, twin = load_model(boxed["c1"]), load_model(plain["c1"])
    assert all(map(torch.equal, model.parameters(), twin.parameters()))
    for _ in zip(stream_rows(model, boxed, ROWS), stream_rows(twin, plain, ROWS), strict=True):
        assert all(map(torch.equal, model.parameters(), twin.parameters()))


def test_tied_weights_stay_tied(tmp_path):
    config = llama_config(tied=True)
    checkpoints = save_checkpoints(tmp_path, config, count=2)
    model = make_model(config, seed=9)
    list(stream_rows(model, checkpoints, [Row(name="mean", weights={"c1": 0.5, "c2": 0.5})]))
    assert model.lm_head.weight.data_ptr() == model.model.embed_tokens.weight.data_ptr()
    assert not torch.equal(model.lm_head.weight, make_model(config, seed=9).lm_head.weight)


def test_one_read_of_the_checkpoints_serves_all_rows_and_nothing_is_written(tmp_path):
    checkpoints = save_checkpoints(tmp_path / "in", llama_config(), count=3)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    read = []
    model = load_model(checkpoints["c1"])
    rows = [Row(name=str(i), weights={"c1": i / 10, "c2": 0.5, "c3": 0.5 - i / 10}) for i in range(1, 5)]
    assert [row.name for row in stream_rows(model, checkpoints, rows, progress=read.append)] == ["1", "2", "3", "4"]
    data = sum(t.nbytes for c in checkpoints.values() for t in c.tensors.values())
    assert sum(read) == data
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before


def test_files_in_the_page_cache_are_read_again_into_the_same_few_images(tmp_path, monkeypatch):
    checkpoints = save_checkpoints(tmp_path, llama_config(), count=2)
    monkeypatch.setattr(live, "WARM_BYTES", 1)
    monkeypatch.setattr(live, "WARM_ROWS", 2)
    images = []
    monkeypatch.setattr(live, "new_image", lambda placement: images.append(new_image(placement)) or images[-1])
    rows = [Row(name=str(i), weights={"c1": i / 10, "c2": 1 - i / 10}) for i in range(1, 8)]
    for warm, ahead, beside_the_models in ((True, False, 1), (True, True, 3), (False, False, 6)):
        monkeypatch.setattr(live, "is_warm", lambda files, warm=warm: warm)
        images.clear()
        model = make_model(llama_config(), seed=9)
        seen = [model.lm_head.weight.detach().clone() for _ in stream_rows(model, checkpoints, rows, ahead=ahead)]
        assert len(images) == beside_the_models
        for row, weight in zip(rows, seen, strict=True):
            list(stream_rows(model, checkpoints, [row]))
            assert torch.equal(model.lm_head.weight, weight)


def test_the_next_row_is_blended_while_this_one_is_in_use(tmp_path, monkeypatch):
    checkpoints = save_checkpoints(tmp_path, llama_config(), count=3)
    model = make_model(llama_config(), seed=9)
    blended = [threading.Event() for _ in ROWS]
    waiting = iter(blended)

    def told(*given, **more):
        blend(*given, **more)
        next(waiting).set()

    monkeypatch.setattr(live, "blend", told)
    for row, following in zip(
        stream_rows(model, checkpoints, ROWS, memory_bytes=one_image(model), ahead=True),
        [*blended[1:], None],
        strict=False,
    ):
        here = {name: p.detach().clone() for name, p in model.named_parameters()}
        assert following is None or following.wait(60)
        expected = written(checkpoints, row, tmp_path / row.name)
        for name, parameter in expected.named_parameters():
            assert torch.equal(model.get_parameter(name), parameter)
            assert torch.equal(here[name], parameter)


def test_a_row_that_cannot_be_blended_ends_the_stream_after_those_before_it(tmp_path):
    checkpoints = save_checkpoints(tmp_path / "in", llama_config(), count=2)
    bad = load(checkpoints["c2"].folder)
    next(iter(bad.values())).view(-1)[0] = float("nan")
    write_checkpoint(tmp_path / "bad", bad, config=dict(checkpoints["c1"].config))
    checkpoints["bad"] = open_checkpoint(tmp_path / "bad")
    model = make_model(llama_config(), seed=9)
    rows = [Row(name=key, weights={key: 1.0}) for key in ("c1", "c2", "bad", "c1")]
    seen = []
    with pytest.raises(NonfiniteError):
        seen.extend(
            row.name for row in stream_rows(model, checkpoints, rows, memory_bytes=one_image(model), ahead=True)
        )
    assert seen == ["c1", "c2"]


def test_a_stream_that_is_left_stops_blending_and_the_model_stays_as_it_was(tmp_path, monkeypatch):
    checkpoints = save_checkpoints(tmp_path, llama_config(), count=2)
    model = make_model(llama_config(), seed=9)
    rows = [Row(name=key, weights={key: 1.0}) for key in ("c1", "c2", "c1")]
    stream = stream_rows(model, checkpoints, rows, memory_bytes=one_image(model), ahead=True)
    next(stream)
    here = {name: p.detach().clone() for name, p in model.named_parameters()}
    stream.close()
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("next-rows")]
    assert all(torch.equal(model.get_parameter(name), parameter) for name, parameter in here.items())


def test_a_model_that_became_a_row_in_inference_mode_can_be_trained(tmp_path):
    checkpoints = save_checkpoints(tmp_path, llama_config(), count=2)
    model = make_model(llama_config(), seed=9)
    with torch.inference_mode():
        list(stream_rows(model, checkpoints, ROWS[:1] * 2))
    model(IDS, labels=IDS).loss.backward()
    assert model.lm_head.weight.grad is not None


def test_after_a_row_a_checkpoint_that_leaves_a_parameter_out_is_refused_as_before(tmp_path):
    checkpoints = save_checkpoints(tmp_path / "all", llama_config(attention_bias=True), count=2)
    model = make_model(llama_config(attention_bias=True), seed=9)
    list(stream_rows(model, checkpoints, [Row(name=key, weights={key: 1.0}) for key in ("c1", "c2")]))
    fewer = save_checkpoints(tmp_path / "fewer", llama_config(), count=1)
    with pytest.raises(ScoreError, match=r"does not set .*bias"):
        next(stream_rows(model, fewer, [Row(name="a", weights={"c1": 1.0})]))


def one_image(model):
    return sum(-(-p.numel() * p.element_size() // 64) * 64 for p in model.parameters())


def test_a_checkpoint_of_another_architecture_is_refused_before_the_model_changes(tmp_path):
    checkpoints = save_checkpoints(tmp_path, llama_config(attention_bias=True), count=2)
    model = make_model(llama_config())
    with pytest.raises(ScoreError, match=r"no place for .*bias"):
        next(stream_rows(model, checkpoints, [Row(name="first", weights={"c1": 1.0})]))
    fewer = save_checkpoints(tmp_path / "fewer", llama_config(), count=1)
    with pytest.raises(ScoreError, match=r"does not set .*bias"):
        next(stream_rows(make_model(llama_config(attention_bias=True)), fewer, [Row(name="a", weights={"c1": 1.0})]))


def test_ingredients_that_differ_are_refused(tmp_path):
    checkpoints = save_checkpoints(tmp_path / "a", llama_config(), count=1)
    checkpoints["c2"] = save_checkpoints(tmp_path / "b", llama_config(vocab_size=32), count=1)["c1"]
    with pytest.raises(MismatchError, match="shape"):
        next(stream_rows(make_model(llama_config()), checkpoints, [Row(name="m", weights={"c1": 0.5, "c2": 0.5})]))


def test_weights_without_a_config_are_refused_with_what_to_do(tmp_path):
    checkpoints = save_checkpoints(tmp_path, llama_config(), count=1)
    (checkpoints["c1"].folder / "config.json").unlink()
    with pytest.raises(CheckpointError, match=r"no config\.json"):
        load_model(open_checkpoint(checkpoints["c1"].folder))


def test_no_rows_are_no_work():
    assert list(stream_rows(None, {}, [])) == []


def test_a_checkpoint_of_fp8_is_scored_dequantised(tmp_path):
    model = make_model(llama_config(), seed=1)
    tensors = {name: t.clone() for name, t in model.state_dict().items()}
    plain = dict(tensors)
    for name in [name for name in tensors if "mlp" in name]:
        codes, scales = fp8.quantised(tensors[name])
        tensors |= {name: codes, f"{name}_scale_inv": scales}
        plain[name] = fp8.dequantised(codes, scales)
    config = llama_config().to_diff_dict() | {QUANTIZATION: fp8.QUANTIZATION}
    write_checkpoint(tmp_path / "fp8", tensors, config=config)
    loaded = load_model(open_checkpoint(tmp_path / "fp8"))
    model.load_state_dict(plain)
    assert torch.equal(loaded(IDS).logits, model.eval()(IDS).logits)
