import json
import os
from dataclasses import replace
from types import SimpleNamespace

import pytest

from tests.lm.test_validate import token_set
from tests.study.studies import FIVE, SMALL, write_study
from trajsoup.core.quantity import format_tokens
from trajsoup.errors import OutputError, RecipeError, StudyError
from trajsoup.study.file.study import load_training_study
from trajsoup.study.train.plan import plan_study, require_room, sized, too_few

CONFIG = {
    "model_type": "deepseek_v3", "hidden_size": 64, "vocab_size": 512, "num_hidden_layers": 2, "num_attention_heads": 2,
    "intermediate_size": 128, "max_position_embeddings": 4096, "dtype": "bfloat16",
}  # fmt: skip


def study_of(tmp_path, text=SMALL, **config):
    (tmp_path / "fork").mkdir(exist_ok=True)
    (tmp_path / "fork" / "config.json").write_text(json.dumps({**CONFIG, **config}))
    return load_training_study(write_study(tmp_path, text))


def test_the_papers_plan_has_its_tokens_checkpoints_and_perturbations(tmp_path):
    plan = plan_study(study_of(tmp_path, FIVE))
    assert plan.positions.count == 24
    assert plan.cost.checkpoints == plan.cost.validation_passes == 5 * 24
    assert format_tokens(plan.budget.total_tokens) == "3.004T"
    assert [list(b.changed) for b in plan.branches] == [
        [], ["seed"], ["peak_lr", "global_batch"], ["schedule"], ["momentum"],
    ]  # fmt: skip
    assert plan.branches[2].steps == 2 * plan.branches[0].steps
    assert "checkpoints are" in plan.notes[0]


def test_flops_are_cost_per_token_times_the_sum_of_horizons(tmp_path):
    plan = plan_study(study_of(tmp_path))
    assert plan.cost.train_flops == plan.model.flops_per_token * 2 * 2048


def test_checkpoints_have_the_fork_points_dtype(tmp_path):
    half = plan_study(study_of(tmp_path)).cost.checkpoint_bytes
    whole = plan_study(study_of(tmp_path, dtype="float32")).cost.checkpoint_bytes
    assert whole == 2 * half == 4 * 4 * plan_study(study_of(tmp_path)).model.total_params


def test_the_models_longest_sequence_is_the_default(tmp_path):
    text = SMALL.replace("    sequence_length: 32\n", "").replace("2048", "65536").replace("1024", "32768")
    assert plan_study(study_of(tmp_path, text)).sequence_length == 4096


def test_an_embedded_model_is_planned_without_making_it(tmp_path):
    text = SMALL.replace("fork_point: fork", "pretrain: {model: {family: qwen3_moe, hidden_size: 32}}")
    plan = plan_study(load_training_study(write_study(tmp_path, text)))
    assert 50_000 < plan.model.total_params < 500_000


def test_repeated_data_is_counted_in_epochs_and_refused_beyond_the_limit(tmp_path):
    study = study_of(tmp_path)
    plan = sized(plan_study(study), train_tokens=1024, validation_tokens=64)
    assert plan.epochs == 2
    assert any("read 2.00 times" in note for note in plan.notes)
    with pytest.raises(StudyError, match=r"has 128 tokens and would be read 16\.0 times by the horizon"):
        sized(plan_study(study), train_tokens=128, validation_tokens=64)
    with pytest.raises(StudyError, match="fewer than one sequence"):
        sized(plan_study(study), train_tokens=31, validation_tokens=64)


def test_a_horizon_that_is_no_multiple_is_refused(tmp_path):
    with pytest.raises(RecipeError, match="not a multiple of checkpoint_every"):
        plan_study(study_of(tmp_path, SMALL.replace("horizon: 2048", "horizon: 2049")))


def test_a_batch_that_does_not_divide_is_refused(tmp_path):
    with pytest.raises(RecipeError, match="do not divide checkpoint_every"):
        plan_study(study_of(tmp_path, SMALL.replace("seed: 1001", "global_batch: 7")))
    with pytest.raises(RecipeError, match="not a multiple of micro_batch 3"):
        plan_study(study_of(tmp_path, SMALL + "    trainer: {builtin: {micro_batch: 3}}"))


def test_a_study_that_does_not_fit_the_disk_is_refused_with_both_sizes(tmp_path):
    study = study_of(tmp_path, SMALL, vocab_size=10**9, hidden_size=10**5)
    with pytest.raises(OutputError, match=r"needs [\d,.]+ [TG]B for 4 checkpoints .* free"):
        require_room(plan_study(study))


def test_what_is_written_already_needs_no_more_room(tmp_path):
    study = study_of(tmp_path)
    plan = plan_study(study)
    require_room(plan)
    written = tmp_path / "branches" / "EXP1" / "checkpoint-4"
    written.mkdir(parents=True)
    (written / "model.safetensors").write_bytes(b"x" * plan.cost.disk_bytes)
    import dataclasses

    require_room(dataclasses.replace(plan, free_bytes=0))


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_an_output_that_cannot_be_written_is_refused(tmp_path):
    study = study_of(tmp_path)
    tmp_path.chmod(0o555)
    try:
        with pytest.raises(OutputError, match="cannot write to"):
            require_room(plan_study(study))
    finally:
        tmp_path.chmod(0o755)


def test_an_output_below_a_file_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    study = study_of(tmp_path, SMALL + "    output: file/inside\n")
    with pytest.raises(OutputError, match="cannot write to"):
        require_room(plan_study(study))


def test_a_fork_point_without_a_config_is_refused(tmp_path):
    study = load_training_study(write_study(tmp_path, SMALL))
    with pytest.raises(StudyError, match=r"there is no fork point at .*fork: name a Hugging Face model folder$"):
        plan_study(study)
    (tmp_path / "fork").mkdir()
    with pytest.raises(StudyError, match=r"has no config\.json"):
        plan_study(study)


def test_a_fork_point_that_looks_like_a_name_on_a_hub_is_fetched_to_where_it_is_looked_for(tmp_path):
    study = load_training_study(write_study(tmp_path, SMALL.replace("fork_point: fork", "fork_point: org/model")))
    with pytest.raises(StudyError, match=rf"hf download org/model --local-dir {tmp_path}/org/model$"):
        plan_study(study)


def test_a_quantised_fork_point_is_refused(tmp_path):
    with pytest.raises(StudyError, match="dtype 'float8"):
        plan_study(study_of(tmp_path, dtype="float8_e4m3fn"))


def test_held_out_sets_that_are_too_small_are_named_with_what_makes_them_larger(tmp_path):
    study = study_of(tmp_path, SMALL + "    evaluate: {validation_tokens: 100, test_tokens: 2000}")
    many, few = (
        replace(token_set(*lines), digest="a" * 16) for lines in ([[1] * 9] * 40, [*([[1] * 9] * 10), [1] * 900])
    )
    found = too_few(study, SimpleNamespace(validation=many, test=few))
    assert found == [
        "10 validation documents are scored, as good as 10 of one size, and below 30 nothing can be chosen: raise "
        "evaluate.validation_tokens, which leaves 30 out",
        "11 test documents are scored, as good as 1 of one size, and below 30 no difference has an interval: add test "
        "documents",
    ]


def test_validation_is_priced_on_the_tokens_that_a_run_reads(tmp_path):
    """`plan` and the plan stage of `run` go through the same function."""
    plan = plan_study(study_of(tmp_path, SMALL + "    evaluate: {validation_tokens: 1k}\n"))
    small = sized(plan, train_tokens=4096, validation_tokens=500).cost.validation_flops
    capped = [sized(plan, train_tokens=4096, validation_tokens=n).cost.validation_flops for n in (1000, 10**6)]
    assert capped == [2 * small, 2 * small]
