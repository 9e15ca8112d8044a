import json

import pytest

from trajsoup.errors import ScanError
from trajsoup.store.metrics import Point, read_metrics, read_trainer_state, with_metric


def table(folder, text):
    (folder / "metrics.csv").write_text(text, encoding="utf-8")
    return read_metrics(folder)


def lines(folder, *rows):
    (folder / "metrics.jsonl").write_text("\n".join(json.dumps(row) for row in rows))
    return read_metrics(folder)


def state(folder, history, **rest):
    path = folder / "trainer_state.json"
    path.write_text(json.dumps({"log_history": history, **rest}))
    return read_trainer_state(path)[0]


def test_a_table_names_checkpoint_step_tokens_losses_and_accuracy(tmp_path):
    (point,) = table(tmp_path, "checkpoint,step,tokens,train_loss,val_loss,accuracy\nckpt-5,5,5000,2.5,2.4,0.6\n")
    assert point == Point(checkpoint="ckpt-5", step=5, tokens=5000, train_loss=2.5, val_loss=2.4, accuracy=0.6)


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        ("global_step,consumed_tokens,loss,eval_loss", Point(step=1, tokens=2, train_loss=3.0, val_loss=4.0)),
        ("iteration,num_input_tokens_seen,lm_loss,validation_loss", Point(step=1, tokens=2, train_loss=3, val_loss=4)),
        ("Step, Tokens ,train/loss,val/loss", Point(step=1, tokens=2, train_loss=3.0, val_loss=4.0)),
        ("\ufeffstep,tokens_seen,training_loss,valid_loss", Point(step=1, tokens=2, train_loss=3.0, val_loss=4.0)),
    ],
)
def test_columns_go_by_the_names_that_frameworks_use(tmp_path, header, expected):
    assert table(tmp_path, f"{header}\n1,2,3,4\n") == [expected]
    assert lines(tmp_path, dict(zip(header.lstrip("\ufeff").split(","), (1, 2, 3, 4), strict=True)))[-1] == expected


def test_several_accuracy_columns_are_averaged(tmp_path):
    (point,) = table(tmp_path, "step,mmlu_acc,arc/accuracy,val_loss,hellaswag_acc_norm\n1,0.5,0.25,2.0,0.75\n")
    assert point.accuracy == 0.5


@pytest.mark.parametrize(
    "name", ["gradient_accumulation_steps", "accumulated_tokens", "train_accuracy", "acc_stderr,none", "vaccines"]
)
def test_columns_that_only_look_like_accuracy_are_none(tmp_path, name):
    (point,) = lines(tmp_path, {"step": 1, name: 8, "acc,none": 0.5})
    assert point.accuracy == 0.5


def test_empty_cells_are_unknown_not_zero(tmp_path):
    assert table(tmp_path, "step,tokens,train_loss,val_loss,acc\n10,,,2.5,\n") == [Point(step=10, val_loss=2.5)]


def test_token_counts_beyond_a_double_stay_exact(tmp_path):
    (point,) = table(tmp_path, "step,tokens\n1,9007199254740993\n")
    assert point.tokens == 9007199254740993
    assert lines(tmp_path, {"step": 1, "tokens": 9007199254740993})[-1].tokens == 9007199254740993


def test_both_files_are_read(tmp_path):
    table(tmp_path, "step,train_loss\n1,2.5\n")
    assert lines(tmp_path, {"step": 1, "val_loss": 2.4}) == [Point(step=1, train_loss=2.5), Point(step=1, val_loss=2.4)]


def test_a_folder_without_metrics_has_no_points(tmp_path):
    assert read_metrics(tmp_path) == []


@pytest.mark.parametrize(
    ("text", "line", "column", "value"),
    [
        ("step,val_loss\n10,2.5\n20,n/a\n", 3, "val_loss", "'n/a'"),
        ("step,val_loss\n10,2.5\n\n\n20,oops\n", 5, "val_loss", "'oops'"),
        ("step,mmlu_acc\n10,high\n", 2, "mmlu_acc", "'high'"),
        ("step,loss\nten,2.5\n", 2, "step", "'ten'"),
        ("step,loss\n1.5,2.5\n", 2, "step", "'1.5'"),
        ("tokens,loss\n-5,2.5\n", 2, "tokens", "'-5'"),
        ("tokens,loss\ninf,2.5\n", 2, "tokens", "'inf'"),
    ],
)
def test_a_bad_number_is_named_by_file_line_and_column(tmp_path, text, line, column, value):
    with pytest.raises(ScanError, match=rf"metrics\.csv, line {line}: {column} is {value}, which is not a .*number"):
        table(tmp_path, text)


NO_NUMBER = ": val_loss is .*not a number"


@pytest.mark.parametrize(
    ("value", "said"), [("x", NO_NUMBER), ([1], NO_NUMBER), ({"a": 1}, NO_NUMBER), (10**400, " is damaged .*too large")]
)
def test_a_bad_value_in_json_lines_is_named_by_its_line(tmp_path, value, said):
    (tmp_path / "metrics.jsonl").write_text(f'\n{{"step": 1}}\n\n{json.dumps({"step": 2, "val_loss": value})}\n')
    with pytest.raises(ScanError, match=rf"metrics\.jsonl, line 4{said}"):
        read_metrics(tmp_path)


@pytest.mark.parametrize("line", ["{", "[1, 2]", "3", "[" * 100_000])
def test_a_line_that_is_no_json_object_is_named(tmp_path, line):
    (tmp_path / "metrics.jsonl").write_text('{"step": 1}\n' + line)
    with pytest.raises(ScanError, match=r"metrics\.jsonl, line 2 is damaged .*: mend or remove"):
        read_metrics(tmp_path)


def test_a_line_that_says_nothing_of_its_place_is_refused(tmp_path):
    with pytest.raises(
        ScanError, match=r"line 2: says neither checkpoint, step nor tokens \(columns: when, val_loss\)"
    ):
        table(tmp_path, "when,val_loss\nmonday,2.5\n")


@pytest.mark.parametrize("name", ["metrics.csv", "metrics.jsonl"])
def test_a_file_in_another_encoding_is_named(tmp_path, name):
    (tmp_path / name).write_bytes("step,größe\n1,2\n".encode("latin-1"))
    with pytest.raises(ScanError, match=rf"{name} is not UTF-8 text .*save it as UTF-8"):
        read_metrics(tmp_path)


def test_the_closing_summary_of_a_trainer_is_not_a_log_entry(tmp_path):
    history = [
        {"loss": 3.0, "step": 5},
        {"loss": 2.0, "step": 10, "num_input_tokens_seen": 640, "train_runtime": 0.1, "train_tokens_per_second": 9},
        {"train_runtime": 9.0, "train_loss": 2.5, "total_flos": 1.0, "step": 10},
    ]
    points = state(tmp_path, history, global_step=10, num_input_tokens_seen=640)
    assert [p.train_loss for p in points if p.train_loss is not None] == [3.0, 2.0]
    assert points[-1] == Point(step=10, tokens=640)


def test_tokens_that_a_trainer_did_not_count_are_unknown(tmp_path):
    assert state(tmp_path, [], global_step=10, num_input_tokens_seen=0) == [Point(step=10)]


def test_the_accuracy_of_a_training_batch_is_not_a_validation_score(tmp_path):
    history = [{"loss": 3.0, "mean_token_accuracy": 0.9, "step": 5}, {"eval_mean_token_accuracy": 0.4, "step": 5}]
    assert [p.accuracy for p in state(tmp_path, history, global_step=5)] == [None, 0.4, None]


def test_a_trainer_state_without_history_is_no_error(tmp_path):
    assert state(tmp_path, None, global_step=3) == [Point(step=3)]
    assert state(tmp_path, ["odd", 3], global_step=3) == [Point(step=3)]


def test_exports_of_wandb_are_read_as_they_come(tmp_path):
    (tmp_path / "wandb_export_2026.csv").write_text(
        '"Step","run-a - eval/loss","run-a - eval/loss__MIN","run-a - eval/loss__MAX"\n10,2.5,2.4,2.6\n'
    )
    (tmp_path / "history.jsonl").write_text(
        '{"_step": 7, "train/global_step": 20, "train/loss": 2.25, "_runtime": 3.5}\n'
    )
    assert read_metrics(tmp_path) == [Point(step=20, train_loss=2.25), Point(step=10, val_loss=2.5)]


def test_a_count_of_calls_is_the_step_only_where_there_is_no_better(tmp_path):
    (tmp_path / "history.csv").write_text("_step,train/loss\n7,2.0\n")
    assert read_metrics(tmp_path) == [Point(step=7, train_loss=2.0)]


def test_of_several_validation_sets_one_is_named():
    points = [Point(step=1, losses=(("eval_code_loss", 1.0), ("eval_wiki_loss", 2.0)))]
    assert with_metric(points, "eval_wiki_loss", run="r")[0][0].val_loss == 2.0
    found, notes = with_metric(points, None, run="r")
    assert found[0].val_loss is None
    assert notes == ["r has 2 validation losses, eval_code_loss, eval_wiki_loss: name one with --metric"]
    with pytest.raises(ScanError, match=r"no 'eval_web_loss': it has eval_code_loss, eval_wiki_loss"):
        with_metric(points, "eval_web_loss", run="r")
    assert with_metric([Point(step=1, losses=(("eval_wiki_loss", 2.0),))], None, run="r")[0][0].val_loss == 2.0
    plain = [Point(step=1, val_loss=3.0, losses=(("eval_wiki_loss", 2.0),))]
    assert with_metric(plain, None, run="r")[0][0].val_loss == 3.0
