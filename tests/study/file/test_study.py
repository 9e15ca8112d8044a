import pytest

from tests.study.studies import FIVE, SMALL, write_study
from trajsoup.core.recipe import Optimizer, Warmup, perturbations
from trajsoup.core.schedule import Schedule, Shape
from trajsoup.engine.executor import Needs
from trajsoup.errors import RecipeError, StudyError
from trajsoup.merge.branches import FOR_RUN, load_branches
from trajsoup.store.fields import declared
from trajsoup.store.yaml_file import load_yaml
from trajsoup.study.file import study as study_module
from trajsoup.study.file.study import ForeignStudy, Setup, Study, load_study, load_training_study
from trajsoup.study.file.sweeps import parse_sweeps


def load(tmp_path, text):
    return load_training_study(write_study(tmp_path, text))


def test_the_papers_study_is_read_as_its_tables(tmp_path):
    study = load(tmp_path, FIVE)
    assert study.horizon == 600 * 10**9
    assert study.checkpoint_every == 25 * 10**9
    assert study.fork_point == tmp_path / "fork"
    changed = {name: sorted(perturbations(r, baseline=study.baseline)) for name, r in study.recipes.items()}
    assert changed == {
        "EXP1": [], "EXP2": ["seed"], "EXP3": ["global_batch", "peak_lr"], "EXP4": ["schedule"], "EXP5": ["momentum"],
    }  # fmt: skip
    assert study.recipes["EXP4"].schedule == Schedule(shape=Shape.LINEAR, decay_to=3.39e-5)


def test_schedules_and_warmups_are_read_in_every_form(tmp_path):
    study = load(
        tmp_path,
        SMALL
        + """
      C: {schedule: {decay_to: 1e-4, shape: cosine}, warmup: 2%}
      W: {schedule: {shape: wsd, decay_share: 30%}, warmup: 1k}
      L: {schedule: linear, warmup: 0.05}
      A: {optimizer: adamw, betas: [0.8, 0.99]}
    """.replace("\n      ", "\n      "),
    )
    assert study.recipes["C"].schedule == Schedule(shape=Shape.COSINE, decay_to=1e-4)
    assert study.recipes["C"].warmup == Warmup(share=0.02)
    assert study.recipes["W"].schedule == Schedule(shape=Shape.WSD, decay_share=0.3)
    assert study.recipes["W"].warmup == Warmup(tokens=1000)
    assert study.recipes["L"].schedule == Schedule(shape=Shape.LINEAR)
    assert study.recipes["A"].optimizer is Optimizer.ADAMW
    assert study.recipes["A"].betas == (0.8, 0.99)


def test_a_branchs_schedule_keeps_nothing_of_the_baselines(tmp_path):
    floor = SMALL.replace(
        "global_batch: 8", "global_batch: 8, schedule: {shape: wsd, decay_to: 1e-4, decay_share: 50%}"
    )
    study = load(tmp_path, floor + "      L: {schedule: linear}\n      C: {schedule: {shape: cosine}}\n")
    assert study.recipes["EXP2"].schedule == Schedule(shape=Shape.WSD, decay_to=1e-4, decay_share=0.5)
    assert study.recipes["L"].schedule == Schedule(shape=Shape.LINEAR)
    assert study.recipes["C"].schedule == Schedule(shape=Shape.COSINE)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("horizn: 5\n", r"unknown key 'horizn': did you mean 'horizon'\?"),
        (SMALL + "    checkpoint_evry: 5", "did you mean 'checkpoint_every'"),
        (SMALL.replace("seed: 1001", "sede: 1001"), r"branches: EXP2: unknown key 'sede': did you mean 'seed'\?"),
        (SMALL.replace("{peak_lr: 1e-3", "{peak_rl: 1e-3"), "did you mean 'peak_lr'"),
        (SMALL.replace("corpus: builtin", "corpus: {trian: x}"), "did you mean 'train'"),
        (SMALL + "    trainer: {builtin: {micro_bacth: 2}}", "did you mean 'micro_batch'"),
        (SMALL + "    trainer: {comand: x}", "did you mean 'command'"),
        (SMALL + "    evaluate: {methods: [emma]}", r"there is no method 'emma': use .*; did you mean ema\?"),
        (SMALL + "    evaluate: {device: cudda}", r"device 'cudda' is none of torch's; did you mean cuda\?"),
        (SMALL + "    evaluate: {device: 'cuda:x'}", "device 'cuda:x' is none of torch's"),
        (SMALL.replace("{seed: 1001}", "{schedule: {decay_too: 1}}"), "did you mean 'decay_to'"),
    ],
)
def test_an_unknown_key_is_refused_with_the_nearest_known_one(tmp_path, text, message):
    with pytest.raises(StudyError, match=message):
        load(tmp_path, text)


@pytest.mark.parametrize("key", ["hidden_size", "num_hidden_layers", "model", "sequence_length"])
def test_a_branch_that_changes_the_architecture_is_refused(tmp_path, key):
    with pytest.raises(StudyError, match=rf"branches: EXP2: '{key}' would change the architecture"):
        load(tmp_path, SMALL.replace("seed: 1001", f"{key}: 5"))


@pytest.mark.parametrize("key", ["corpus", "mixture", "data"])
def test_a_branch_that_changes_the_documents_is_told_of_sources(tmp_path, key):
    with pytest.raises(StudyError, match=rf"'{key}' .*sources"):
        load(tmp_path, SMALL.replace("seed: 1001", f"{key}: x"))


def test_a_branch_equal_to_another_is_refused(tmp_path):
    with pytest.raises(RecipeError, match="'EXP1' and 'EXP2' have the same recipe"):
        load(tmp_path, SMALL.replace("seed: 1001", "seed: 1234"))


@pytest.mark.parametrize(
    "text",
    [
        "fork_point: !!python/object/apply:os.system ['true']\n",
        "fork_point: !custom x\n",
        "a: &a [x]\nb: *a\n",
        "fork_point: &anchor x\n",
        "fork_point: x\nfork_point: y\n",
        "- a list\n",
        "fork_point: [unclosed\n",
        "\x00",
    ],
)
def test_tags_anchors_doubles_and_broken_yaml_are_refused(tmp_path, text):
    with pytest.raises(StudyError, match=r"study\.yaml"):
        load(tmp_path, text)


def test_an_anchor_bomb_is_refused_at_once(tmp_path):
    lines = ["a0: &a0 [x, x]"] + [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 30)]
    with pytest.raises(StudyError, match="anchors and aliases are not allowed"):
        load(tmp_path, "\n".join(lines))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("    horizon: 2048\n", "", "`horizon` is missing"),
        ("horizon: 2048", "horizon: many", "horizon is 'many'"),
        ("fork_point: fork", "fork_point: fork\n    pretrain: {}", "name one of `fork_point`"),
        ("    fork_point: fork\n", "", "name one of `fork_point`"),
        ("seed: 1001", "peak_lr: fast", "peak_lr is 'fast'"),
        ("seed: 1001", "peak_lr: -1", "branches: EXP2: peak_lr is -1"),
        ("seed: 1001", "global_batch: 2.5", "global_batch is 2.5"),
        ("seed: 1001", "optimizer: sgd", "optimizer is 'sgd': use muon or adamw"),
        ("seed: 1001", "schedule: triangle", "schedule: shape is 'triangle': use constant, linear, cosine or wsd"),
        ("seed: 1001", "betas: 0.9", "betas is 0.9"),
        ("seed: 1001", "optimizer: adamw, momentum: 0.9", "momentum is Muon's"),
        ("seed: 1001", "seed: 1k", "seed is '1k', which is not a finite number"),
        ("corpus: builtin", "corpus: {seed: 1k}", "corpus: seed is '1k', which is not a finite number"),
        ("EXP2:", "../EXP2:", "branch name '../EXP2'"),
        ("EXP2: {seed: 1001}", "EXP2: 5", "expected `key: value` lines"),
    ],
)
def test_a_wrong_value_is_refused_with_its_place_and_the_remedy(tmp_path, old, new, message):
    text = SMALL.replace(old, new)
    assert text != SMALL
    with pytest.raises(StudyError, match=message.replace("*", r"\*")):
        load(tmp_path, text)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("trainer: own", "use builtin, or `command"),
        ("trainer: {builtin: {precision: fp8}}", "precision is 'fp8'"),
        ("trainer: {builtin: {sharding: tp}}", "sharding is 'tp'"),
        ("trainer: {builtin: {micro_batch: 0}}", "micro_batch is 0"),
        ("trainer: {builtin: {}, command: x}", "either builtin or command"),
        ("trainer: {builtin: {nodes: 1.5}}", "nodes is 1.5: use a whole number"),
        ("trainer: {builtin: {cpus: 0}}", "cpus is 0: use a number above 0"),
        ("trainer: {builtin: {processes: 2, launcher: torchrun}}", "launcher and processes both say how many"),
        ("trainer: {command: x, stalled_after: -1}", "stalled_after is -1"),
        ("trainer: {resume_command: x}", "`command` is missing"),
        ("command: torchrun x", "'command' belongs under `trainer`"),
        ("report_to: [wandb, pigeon]", "report_to is 'pigeon': use tensorboard, wandb, mlflow or trackio"),
        ("setting: limited", "unknown key 'setting'"),
        ("max_epochs: -1", "max_epochs is -1: use a number above 0"),
        ("seeds: 0", "seeds is 0: use a whole number of 1 or more"),
    ],
)
def test_a_wrong_trainer_or_setting_is_refused(tmp_path, line, message):
    with pytest.raises(StudyError, match=message):
        load(tmp_path, f"{SMALL}    {line}\n")


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ("{hiden_size: 32}", "pretrain: model: unknown key 'hiden_size': did you mean 'hidden_size'"),
        ("{family: qwen3_moe, kv_lora_rank: 8}", "unknown key 'kv_lora_rank'"),
        ("{hidden_size: 33}", r"hidden_size is 33, which num_attention_heads \(4\) does not divide"),
        ("{num_key_value_heads: 3}", r"num_attention_heads is 4, which num_key_value_heads \(3\)"),
        ("{num_experts_per_tok: 9}", "num_experts_per_tok is 9, of n_routed_experts 8"),
        ("{qk_rope_head_dim: 7}", "use an even number"),
        ("{hidden_size: wide}", "hidden_size is 'wide'"),
        ("{num_hidden_layers: 0}", "num_hidden_layers is 0: use a whole number of 1 or more"),
        ("{tie_word_embeddings: 1}", "use true or false"),
        ("gpt9", "model is 'gpt9': use deepseek_v3"),
    ],
)
def test_a_model_that_cannot_be_built_is_refused_when_the_study_is_read(tmp_path, model, message):
    with pytest.raises(StudyError, match=message):
        load(tmp_path, SMALL.replace("fork_point: fork", f"pretrain: {{model: {model}}}"))


def test_the_fork_points_recipe_knows_nothing_of_the_baseline(tmp_path):
    text = SMALL.replace("fork_point: fork", "pretrain: {recipe: {seed: 3}}")
    one = load(tmp_path, text).pretrain
    other = load(tmp_path, text.replace("peak_lr: 1e-3, global_batch: 8", "peak_lr: 5e-3, momentum: 0.5")).pretrain
    assert one == other
    assert one.recipe.seed == 3


def test_a_command_brings_its_own_data_unless_told_otherwise(tmp_path):
    text = SMALL.replace("    corpus: builtin\n", "") + "    trainer: {command: train --lr {peak_lr}}".replace(
        "train --lr {peak_lr}", "'train --lr {peak_lr}'"
    )
    study = load(tmp_path, text)
    assert study.corpus is None
    assert study.trainer.command == "train --lr {peak_lr}"


def test_a_branch_declares_what_it_takes_on_each_node(tmp_path):
    def needs(trainer):
        return load_training_study(write_study(tmp_path, SMALL + f"    trainer: {trainer}\n")).trainer.needs

    assert needs("builtin") == Needs(cpus=1, gpus=0, nodes=1)
    assert needs("{builtin: {processes: 4}}") == Needs(cpus=4)
    assert needs("{builtin: {processes: 8, gpus: 8, cpus: 96, nodes: 2}}") == Needs(cpus=96, gpus=8, nodes=2)
    assert needs("{command: torchrun x, gpus: 8, nodes: 4}") == Needs(cpus=1, gpus=8, nodes=4)


def test_where_a_branch_runs_does_not_make_it_another_study(tmp_path):
    def digest(trainer):
        return load_study(write_study(tmp_path, SMALL + f"    trainer: {trainer}\n")).digest

    assert digest("{builtin: {cpus: 4, gpus: 1, stalled_after: 60, nodes: 1, processes: 1}}") == digest("builtin")
    assert digest("{builtin: {nodes: 2}}") != digest("builtin")  # sums over processes are rounded in another order


RUNS = "branches: {a: {checkpoints: [{path: c, step: 1}]}}\ncorpus: {train: x}\n"


@pytest.mark.parametrize("line", ["", "kind: runs\n"])
def test_one_schema_tells_runs_from_a_training_by_its_kind_or_by_what_it_holds(tmp_path, line):
    setup = load_study(write_study(tmp_path, line + RUNS))
    assert isinstance(setup, ForeignStudy)
    assert setup.output == tmp_path / "study-soups"
    assert [str(s.path) for s in setup.runs.branches[0].checkpoints] == [str(tmp_path / "c")]
    with pytest.raises(StudyError, match="lists runs that exist: nothing is left to train"):
        load_training_study(tmp_path / "study.yaml")


@pytest.mark.parametrize("line", ["", "    kind: train\n"])
def test_a_study_to_train_is_no_study_of_runs(tmp_path, line):
    path = write_study(tmp_path, SMALL + line)
    assert isinstance(load_study(path), Study)
    with pytest.raises(StudyError, match="is a study to train, not one of finished runs"):
        load_branches(path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (SMALL + "    kind: merge\n", "kind is 'merge': use train or runs"),
        (SMALL + "    kind: runs\n", "unknown key 'sequence_length': known keys: kind, fork_point, screen"),
        ("kind: train\n" + RUNS, "`horizon` is missing"),
        ("horizon: 1k\ncheckpoint_every: 1k\n" + RUNS, "branches: a: unknown key 'checkpoints'"),
        (RUNS.replace("corpus: {train: x}\n", ""), "names no documents: add `corpus"),
        (RUNS + "screen: {tolerance: wide}\n", "screen: tolerance is 'wide'"),
        (RUNS + "screen: {force: b}\n", "screen: there is no branch 'b': the branches are a"),
        (RUNS + "evaluate: {baseline: b}\n", "evaluate: there is no branch 'b'"),
        (SMALL + "    retention: {every_nth: 2}\n", "retention: `top_k` is missing"),
        (SMALL + "    retention: {top_k: 0}\n", "retention: top_k is 0: use a whole number of 1 or more"),
        (SMALL + "    evaluate: {ks: []}\n", r"evaluate: ks is \[\]: list at least one K"),
        (SMALL + "    evaluate: {ks: [0]}\n", "evaluate: ks is 0: use a whole number of 1 or more"),
        (SMALL + "    evaluate: {horizons: 0}\n", "evaluate: horizons is 0"),
        (SMALL + "    evaluate: {rank_by: luck}\n", "evaluate: rank_by is 'luck': use loss or accuracy"),
        (SMALL + "    sft: {items: 0}\n", "sft: items is 0: use a whole number of 1 or more"),
        (SMALL + "    publish: folder\n", "publish is 'folder': write the URL"),
        (SMALL + "    horizon_: 1e99999999\n", "unknown key 'horizon_'"),
        (SMALL.replace("horizon: 2048", "horizon: 1e99999999"), "horizon is '1e99999999'"),
    ],
)
def test_a_file_of_either_kind_is_refused_with_the_place(tmp_path, text, message):
    with pytest.raises(StudyError, match=message) as caught:
        load_study(write_study(tmp_path, text))
    assert str(caught.value).startswith(str(tmp_path / "study.yaml"))


def test_a_file_is_parsed_once(tmp_path, monkeypatch):
    calls = []
    monkeypatch.setattr(study_module, "load_yaml", lambda path: calls.append(path) or load_yaml(path))
    load_study(write_study(tmp_path, SMALL + "    publish: memory://bucket/x\n"))
    assert len(calls) == 1


def test_what_a_file_of_runs_may_hold_besides_is_what_every_study_has():
    assert set(FOR_RUN) == {f.key for f in declared(Setup)}


@pytest.mark.parametrize("name", ["../../../OUT/pwned", "a/b", "", ".hidden", "a" * 65])
def test_the_name_of_a_sweep_that_is_no_file_name_is_refused(tmp_path, name):
    with pytest.raises(StudyError, match="the name of a sweep is that of a file"):
        parse_sweeps({name: {"kind": "coefficients"}}, where="sweeps")
