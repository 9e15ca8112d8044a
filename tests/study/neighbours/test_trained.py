"""Methods that train, in one tiny study: DiLoCo against a loop written by hand, bit by bit; a decayed run."""

import dataclasses
import functools
import json
import shutil

import numpy as np
import pytest
import torch

from tests.lm.stand_in import END, SEQUENCE, VOCAB
from tests.ray_cluster import ray_for_tests
from tests.study.studies import write_study
from tests.study.tiny_study import make_study, small_documents
from trajsoup.core.outer_steps import outer_iterate
from trajsoup.core.recipe import Recipe
from trajsoup.core.schedule import learning_rate
from trajsoup.core.signal import Signal
from trajsoup.errors import StudyError
from trajsoup.lm.data_order import DataOrder
from trajsoup.lm.job import read_job
from trajsoup.lm.models import Embedded, embedded_config, new_model, open_model
from trajsoup.lm.optimizers import make_optimizers, set_learning_rate
from trajsoup.lm.sharding import clip_gradients
from trajsoup.study.file.study import load_study
from trajsoup.study.records.files import Records, writing
from trajsoup.study.records.neighbours import NeighboursRecord
from trajsoup.study.score.scorer import FORK_POINT, silent
from trajsoup.study.stages import STAGES
from trajsoup.study.train.plan import on_corpus, plan_study
from trajsoup.study.workbench import Workbench

BATCH, STEPS, ROUNDS = 8, 4, 3
TEXT = f"""
    fork_point: fork
    corpus: builtin
    sequence_length: {SEQUENCE}
    horizon: {24 * BATCH * SEQUENCE}
    checkpoint_every: {12 * BATCH * SEQUENCE}
    max_epochs: 1000
    baseline: {{peak_lr: 3e-3, global_batch: {BATCH}}}
    branches: {{EXP1: {{}}, EXP2: {{seed: 1001}}}}
    evaluate: {{validation_tokens: 2k, test_tokens: 2k, probe_tokens: 1k, ks: [1], horizons: 1, resamples: 50,
               tolerance: 0.5}}
    sweeps: []
    neighbours:
      diloco: {{workers: 2, steps: {STEPS}}}
      wsd: {{decay_share: 0.25}}
      branch-train-merge:
      branch-train-mix: {{router_tokens: {2 * BATCH * SEQUENCE}}}
"""
NEEDED = ("plan", "train", "validation", "screen", "rows", "neighbours")


DENSE = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 2}


@pytest.fixture(scope="module")
def fork_point(tmp_path_factory):
    folder = tmp_path_factory.mktemp("fork") / "model"
    config = embedded_config(Embedded.LLAMA, vocab_size=VOCAB, end_of_text=END, sequence_length=SEQUENCE, changes=DENSE)
    new_model(config, seed=0).save_pretrained(folder)
    return folder


def documents(folder):
    """The byte corpus; its first training document is of one source, the others of another."""
    corpus = small_documents(folder)
    source = (np.arange(corpus.train.n_documents) > 0).astype(np.uint8)
    return dataclasses.replace(
        corpus, train=dataclasses.replace(corpus.train, source=source, source_names=("json", "text"))
    )


@pytest.fixture(scope="module")
def study(tmp_path_factory, fork_point):
    folder = tmp_path_factory.mktemp("neighbours")
    (folder / "fork").symlink_to(fork_point)
    write_study(folder, TEXT)
    run(folder)
    return folder


def run(folder, executor=None):
    """The stages up to the methods that train, and no others."""
    with writing(folder) as records:
        bench = Workbench(
            load_study(folder / "study.yaml"),
            cache=folder / "cache",
            progress=silent,
            corpus=documents(folder),
            records=records,
            executor=executor,
        )
        for stage in STAGES:
            if stage.name in NEEDED:
                stage.run(bench)


def record(folder):
    return Records(folder).require(NeighboursRecord)


def by_hand(fork_point, tokens):
    """Two workers, one after the other at every step; returns the model after the last outer step.

    The shared model is that of torch's own SGD in fp64. What workers go on from is the same sum of endpoints taken in the
    engine's order: in fp64 the two agree to the last digits, and decimal ties of 0.7 and 0.9 would round them apart.
    """
    theta = [p.detach().double() for p in open_model(fork_point).parameters()]
    shared = [torch.nn.Parameter(p.clone()) for p in theta]
    sgd = torch.optim.SGD(shared, lr=0.7, momentum=0.9, nesterov=True)
    recipe, length = Recipe(peak_lr=3e-3, global_batch=BATCH), BATCH * SEQUENCE
    horizon, ends = STEPS * ROUNDS * length, {FORK_POINT: theta}
    workers = []
    for n in range(2):
        model = open_model(fork_point).train()
        order = DataOrder(tokens=tokens.tokens, digest=tokens.digest, seed=recipe.seed + n, sequence_length=SEQUENCE)
        workers.append((model, make_optimizers(model, recipe=recipe), order))
    for step in range(STEPS * ROUNDS):
        for model, optimizers, order in workers:
            ids = torch.from_numpy(order.batch(step * BATCH, BATCH))
            model(input_ids=ids, labels=ids).loss.backward()
            clip_gradients(list(model.parameters()), clip=recipe.clip)
            rate = learning_rate(
                recipe.schedule,
                tokens=(step + 1) * length,
                peak_lr=recipe.peak_lr,
                warmup_tokens=recipe.warmup.length(horizon),
                horizon=horizon,
            )
            set_learning_rate(optimizers, rate)
            for optimizer in optimizers:
                optimizer.step()
                optimizer.zero_grad()
        if (step + 1) % STEPS == 0:
            keys = [[f"worker-{n}/checkpoint-{at}" for n in (1, 2)] for at in range(STEPS, step + 2, STEPS)]
            ends |= {
                k: [p.detach().double() for p in w[0].parameters()] for k, w in zip(keys[-1], workers, strict=True)
            }
            weights = outer_iterate(FORK_POINT, keys, lr=0.7, momentum=0.9).weights
            for i, parameter in enumerate(shared):
                parameter.grad = parameter.detach() - (ends[keys[-1][0]][i] + ends[keys[-1][1]][i]) / 2
            sgd.step()
            for i, parameter in enumerate(shared):
                blended = functools.reduce(torch.add, [weights[k] * ends[k][i] for k in sorted(weights)])
                torch.testing.assert_close(blended, parameter.detach(), rtol=1e-12, atol=1e-14)
                for model, _, _ in workers:
                    list(model.parameters())[i].data.copy_(blended.float())
    return dict(workers[0][0].named_parameters())


def test_diloco_has_the_bits_of_two_workers_and_an_outer_sgd_written_by_hand(study, fork_point, tmp_path):
    from trajsoup.core.soup import Row
    from trajsoup.lm.live import load_model, stream_rows
    from trajsoup.store.checkpoint import open_checkpoint

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        wanted = by_hand(fork_point, small_documents(tmp_path).train)
    finally:
        torch.set_num_threads(threads)
    found = next(m for m in record(study).models if m.name == "diloco")
    assert len(found.weights) == 1 + 2 * ROUNDS
    assert sum(found.weights.values()) == pytest.approx(1)
    places = {key: study / key for key in found.weights}
    checkpoints = {key: open_checkpoint(place) for key, place in places.items()}
    model = load_model(open_checkpoint(fork_point))
    (_,) = stream_rows(model, checkpoints, [Row(name="diloco", weights=found.weights)])
    for name, parameter in model.named_parameters():
        assert torch.equal(parameter, wanted[name]), name


def test_of_the_outer_steps_of_diloco_validation_chooses_one_beside_the_last(study):
    last, best = (next(m for m in record(study).models if m.name == name) for name in ("diloco", "diloco/best"))
    assert best.validation_loss <= last.validation_loss
    assert len(best.weights) in {1 + 2 * r for r in range(1, ROUNDS + 1)}
    assert best.tokens == last.tokens


def test_the_decayed_run_ends_at_its_floor_on_the_tokens_of_one_branch(study):
    (folder,) = (study / "neighbours").glob("wsd-*")
    rows = [json.loads(line) for line in (folder / "run" / "metrics.jsonl").read_text().splitlines()]
    rates = {row["tokens"]: row["learning_rate"] for row in rows}
    horizon = 24 * BATCH * SEQUENCE
    assert rates[horizon] == pytest.approx(3e-4)
    assert rates[horizon * 3 // 4] == 3e-3
    assert {m.tokens for m in record(study).models if m.name in ("wsd", "diloco")} == {horizon}


def test_each_is_compared_with_trajectory_soup_on_test_and_the_soup_stands_first(study):
    found = record(study)
    assert [m.name for m in found.models] == [
        "trajectory-soup/limited", "single-merge", "diloco", "diloco/best", "wsd", "branch-train-merge",
        "branch-train-merge/ensemble", "branch-train-mix/mean", "branch-train-mix",
    ]  # fmt: skip
    for name in ("diloco", "wsd", "branch-train-merge", "branch-train-merge/ensemble", "branch-train-mix"):
        difference = found.against(name, "trajectory-soup/limited", Signal.LOSS).difference
        losses = {m.name: m.test_loss.value for m in found.models}
        assert difference == pytest.approx(losses[name] - losses["trajectory-soup/limited"])


def test_the_experts_read_a_source_each_and_their_average_has_the_posterior_as_weights(study):
    (folder,) = (study / "neighbours").glob("experts-*")
    jobs = [read_job(folder / f"expert-{n}" / "branch.json") for n in (1, 2)]
    assert [job.recipe.sources for job in jobs] == [(("json", 1.0),), (("text", 1.0),)]
    assert sum(job.horizon for job in jobs) == 24 * BATCH * SEQUENCE
    average, together = (m for m in record(study).models if m.name.startswith("branch-train-merge"))
    assert sum(average.weights.values()) == pytest.approx(1)
    assert (average.models, together.models, together.weights) == (1, 2, {})
    assert record(study).against(together.name, average.name, Signal.LOSS) is not None


def test_the_mixture_is_a_folder_that_transformers_loads_in_which_the_router_alone_was_trained(study):
    from transformers import AutoModelForCausalLM

    (folder,) = (study / "neighbours").glob("branch-train-mix-*")
    before, after = (
        AutoModelForCausalLM.from_pretrained(folder / name).state_dict() for name in ("stacked", "router/checkpoint-2")
    )
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    assert changed == {f"model.layers.{i}.mlp.gate.weight" for i in (0, 1)}
    found = {m.name: m for m in record(study).models}
    assert found["branch-train-mix"].tokens == (24 + 2) * BATCH * SEQUENCE
    assert record(study).against("branch-train-mix", "branch-train-mix/mean", Signal.LOSS) is not None


def test_the_section_lists_all_of_them_and_says_which_can_be_told_apart(study):
    from trajsoup.report.sections.trained_neighbours import section

    (table,) = section(Records(study)).tables
    assert len(table.rows) == 9
    assert any("Branch-Train-MiX against Plain mean of the experts" in note for note in table.notes)
    together = next(row for row in table.rows if row.cells[0].text == "Branch-Train-Merge (ensemble)")
    assert together.cells[table.columns.index("models at inference")].text == "2"


def test_a_killed_diloco_goes_on_to_the_same_weights(study, tmp_path):
    """Killed within the second round: outcomes of the workers are gone, one worker is ahead of the other."""
    copy = tmp_path / "copy"
    shutil.copytree(study, copy, symlinks=True)
    (folder,) = (copy / "neighbours").glob("diloco-*")
    (copy / "records" / "neighbours.json").unlink()
    shutil.rmtree(folder / "outer-2")
    for worker in folder.glob("worker-*"):
        (worker / "outcome.json").unlink()
    # the second worker lost the last round, and with it its last state: it starts again from the fork point
    shutil.rmtree(folder / "worker-2")
    run(copy)
    before, after = record(study), record(copy)
    assert after.models == before.models


@pytest.mark.slow  # another whole study
@pytest.mark.timeout(1500)
def test_on_ray_all_methods_come_to_the_same_models(study, fork_point, tmp_path):
    """Branches and stages before it are those of the study that ran here; what trains is trained on Ray's workers."""
    copy = tmp_path / "copy"
    shutil.copytree(study, copy, symlinks=True, ignore=shutil.ignore_patterns("neighbours", "neighbours.json"))
    with ray_for_tests() as executor:
        run(copy, executor)
    assert record(copy).models == record(study).models
    ends = "neighbours/diloco-*/worker-*/checkpoint-*/model.safetensors"
    for path in (found := sorted(study.glob(ends))):
        assert (copy / path.relative_to(study)).read_bytes() == path.read_bytes()
    assert len(found) == 2 * ROUNDS


def test_a_worker_that_lost_its_state_is_refused_not_restarted_with_an_empty_optimizer(study, tmp_path):
    from trajsoup.errors import TrainError
    from trajsoup.lm.train import train_branch

    (job,) = (study / "neighbours").glob("diloco-*/worker-1/branch.json")
    lost = dataclasses.replace(read_job(job), folder=tmp_path / "worker-1")
    lost.folder.mkdir()
    with pytest.raises(TrainError, match="its last state is at 0"):
        train_branch(lost)


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ("neighbours: {diloco: {workers: 1}}", "workers is 1"),
        ("neighbours: {branch-train-merge: {sources: [json]}}", "name two or more"),
        ("neighbours: [branch-train-mix]", "router_tokens"),
        ("neighbours: {diloco: {outer_momentum: 1}}", "outer_momentum is 1"),
        ("neighbours: [dilocco]", "dilocco"),
        ("neighbours: [wsd]\n    trainer: {command: train.sh}", "builtin trainer"),
    ],
)
def test_what_cannot_be_trained_is_refused_when_the_file_is_read(tmp_path, fork_point, more, says):
    with pytest.raises(StudyError, match=says):
        make_study(tmp_path / "study", fork_point, more=f"\n    {more}\n")


def test_rounds_that_do_not_come_out_even_are_refused_by_the_plan(tmp_path, fork_point):
    study = make_study(tmp_path / "study", fork_point, more="\n    neighbours: {diloco: {workers: 5}}\n")
    with pytest.raises(StudyError, match=r"5 workers share 6,144 tokens.*no whole rounds of 1,024"):
        plan_study(study)


def test_a_mixture_of_what_is_no_dense_model_is_refused_by_the_plan(tmp_path):
    from tests.lm.stand_in import make_fork_point

    sparse = make_fork_point(tmp_path / "sparse")
    study = make_study(tmp_path / "study", sparse, more="\n    neighbours: {branch-train-mix: {router_tokens: 1k}}\n")
    with pytest.raises(StudyError, match=r"dense models .*'deepseek_v3'"):
        plan_study(study)


def test_experts_of_a_corpus_without_sources_are_refused_before_anything_is_trained(tmp_path, fork_point):
    study = make_study(tmp_path / "study", fork_point, more="\n    neighbours: [branch-train-merge]\n")
    with pytest.raises(StudyError, match=r"experts need two sources.*none"):
        on_corpus(plan_study(study), small_documents(tmp_path))


def test_a_file_of_runs_that_exist_has_no_recipe_to_train_in(tmp_path):
    path = write_study(tmp_path, "kind: runs\nbranches: {}\nneighbours: [diloco]\n")
    with pytest.raises(StudyError, match=r"neighbours.*kind: train"):
        load_study(path)
