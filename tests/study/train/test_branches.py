"""Whole studies on the stand-in model: each branch is a real process."""

import contextlib
import dataclasses
import json
import os
import sys
import textwrap
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.study.studies import SMALL, byte_corpus, make_fork_point, write_study
from trajsoup.errors import CorpusError, RecipeError, StudyError, TrainError
from trajsoup.store.lock import holding
from trajsoup.study.file.study import load_training_study
from trajsoup.study.train.branches import Stage, train_study
from trajsoup.study.train.commands import command_process
from trajsoup.study.train.data import load_data
from trajsoup.study.train.fork_point import ensure_fork_point
from trajsoup.study.train.plan import plan_study
from trajsoup.study.train.processes import Status, only_one, start_branch, stop_branches

SCRIPT = '''
"""A training script of someone else: writes checkpoints and a log, knows nothing of us."""
import json, pathlib, struct, sys
out, lr, seed, steps, every, fate = sys.argv[1:]
out, steps, every = pathlib.Path(out), int(steps), int(every)
for step in range(every, steps + 1, every):
    folder = out / f"checkpoint-{step}"
    folder.mkdir(exist_ok=True)
    header = json.dumps({"w": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}).encode()
    weight = struct.pack("<f", float(lr) * step)
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + weight)
    with (out / "metrics.jsonl").open("a") as file:
        file.write(json.dumps({"step": step, "loss": 1 / step}) + chr(10))
    if fate == "dies":
        sys.exit("out of luck")
'''


def study_in(folder, fork_point, text=SMALL):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "fork").symlink_to(fork_point)
    return load_training_study(write_study(folder, text))


def own_trainer(folder, fate="lives"):
    (folder / "own.py").write_text(SCRIPT)
    fields = "{output_dir} {peak_lr} {seed} {total_steps} {checkpoint_steps}"
    words = f"{sys.executable} {folder / 'own.py'} {fields} {fate}"
    return textwrap.dedent(SMALL.replace("    corpus: builtin\n", "")) + f'trainer: {{command: "{words}"}}\n'


def test_branches_train_at_once_and_a_diverging_one_stops_no_other(tmp_path, fork_point):
    text = SMALL.replace("EXP2: {seed: 1001}", "EXP2: {peak_lr: 1e37, optimizer: adamw}\n      EXP3: {seed: 7}")
    study = study_in(tmp_path, fork_point, text)
    corpus = byte_corpus(tmp_path)
    seen = []
    trained = train_study(
        study, jobs=3, cache=tmp_path / "cache", corpus=corpus, on_progress=lambda stage, p: seen.append((stage, p))
    )
    status = {o.branch: o.status for o in trained.outcomes}
    assert status == {"EXP1": Status.FINISHED, "EXP2": Status.DIVERGED, "EXP3": Status.FINISHED}
    assert "peak_lr" in trained.failed[0].message
    assert "diverged" in (tmp_path / "branches" / "EXP2" / "train.log").read_text()
    assert {s for s, _ in seen} == {Stage.BRANCHES}
    assert [p.tokens for p in seen[-1][1]][::2] == [2048, 2048]
    assert sum(p.running for p in seen[0][1]) == 3

    before = (tmp_path / "branches" / "EXP1" / "checkpoint-8" / "model.safetensors").stat().st_mtime_ns
    again = train_study(study, branches=["EXP1"], cache=tmp_path / "cache", corpus=corpus)
    assert again.outcomes[0].status is Status.FINISHED
    assert (tmp_path / "branches" / "EXP1" / "checkpoint-8" / "model.safetensors").stat().st_mtime_ns == before

    changed = dataclasses.replace(study, recipes={"EXP1": study.recipes["EXP3"]})
    with pytest.raises(TrainError, match="seed: 1234 -> 7"):
        train_study(changed, cache=tmp_path / "cache", corpus=corpus)


def test_a_command_is_run_for_every_branch_and_its_checkpoints_are_found(tmp_path, fork_point):
    study = study_in(tmp_path, fork_point, own_trainer(tmp_path))
    trained = train_study(study, cache=tmp_path / "cache")
    assert [(o.status, o.tokens) for o in trained.outcomes] == [(Status.FINISHED, 2048)] * 2
    record = json.loads((tmp_path / "branches" / "EXP2" / "command.json").read_text())
    assert record["seed"] == "1001"
    assert train_study(study, cache=tmp_path / "cache").failed == ()


def test_a_command_that_dies_is_reported_with_its_last_words_and_goes_on_later(tmp_path, fork_point):
    study = study_in(tmp_path, fork_point, own_trainer(tmp_path, "dies"))
    trained = train_study(study, cache=tmp_path / "cache")
    assert [o.status for o in trained.outcomes] == [Status.FAILED] * 2
    assert "ended with code 1 (out of luck)" in trained.outcomes[0].message
    resumed = dataclasses.replace(study.trainer, resume_command=f"touch {tmp_path}/resumed-{{branch}}")
    trained = train_study(dataclasses.replace(study, trainer=resumed), cache=tmp_path / "cache")
    assert (tmp_path / "resumed-EXP2").exists()
    assert "ended at 1,024 of 2,048 tokens" in trained.outcomes[0].message


def test_a_command_resumed_with_another_recipe_is_refused_with_the_difference(tmp_path, fork_point):
    study = study_in(tmp_path, fork_point, own_trainer(tmp_path, "dies"))
    train_study(study, branches=["EXP1"], cache=tmp_path / "cache")
    recipe = dataclasses.replace(study.recipes["EXP1"], peak_lr=0.5)
    with pytest.raises(TrainError, match=r"peak_lr: 0\.001 -> 0\.5"):
        train_study(dataclasses.replace(study, recipes={"EXP1": recipe}), cache=tmp_path / "cache")


def test_a_command_that_leaves_no_checkpoint_has_failed(tmp_path, fork_point):
    text = textwrap.dedent(SMALL.replace("    corpus: builtin\n", "")) + "trainer: {command: 'true'}\n"
    trained = train_study(study_in(tmp_path, fork_point, text), cache=tmp_path / "cache")
    assert "its checkpoints cannot be found" in trained.outcomes[0].message


def test_a_command_that_does_not_exist_is_refused_by_name(tmp_path, fork_point):
    text = textwrap.dedent(SMALL.replace("    corpus: builtin\n", "")) + "trainer: {command: no-such-program}\n"
    with pytest.raises(TrainError, match="cannot start 'no-such-program'"):
        train_study(study_in(tmp_path, fork_point, text), cache=tmp_path / "cache")


def test_an_interrupt_stops_every_branch_and_what_it_started(tmp_path, fork_point):
    text = textwrap.dedent(SMALL.replace("    corpus: builtin\n", ""))
    command = f"bash -c 'sleep 300 & echo $! > {tmp_path}/pid-{{branch}}; wait'"
    study = study_in(tmp_path, fork_point, f'{text}trainer: {{command: "{command}"}}\n')

    def interrupt(stage, progress):
        if all((tmp_path / f"pid-{p.branch}").exists() for p in progress):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train_study(study, jobs=2, cache=tmp_path / "cache", on_progress=interrupt)
    for branch in ("EXP1", "EXP2"):
        wait_until_gone((tmp_path / f"pid-{branch}").read_text())


def wait_until_gone(pid):
    """Fails by the test's own timeout: a killed process needs a moment on a busy machine."""
    stat = Path(f"/proc/{pid.strip()}/stat")
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        while stat.read_text().rsplit(")", 1)[1].split()[0] != "Z":
            time.sleep(0.05)


def test_a_branch_in_training_is_not_trained_twice(tmp_path, fork_point, monkeypatch):
    monkeypatch.setattr("trajsoup.study.train.processes.LOCK_SECONDS", 0)
    study = study_in(tmp_path, fork_point, own_trainer(tmp_path))
    with (
        holding(tmp_path / "branches" / "EXP1" / ".lock"),
        pytest.raises(TrainError, match=rf"'EXP1' is being trained by process {os.getpid()} on "),
    ):
        train_study(study, cache=tmp_path / "cache")


def test_a_branch_stays_held_by_its_process_when_the_study_is_killed(tmp_path, fork_point, monkeypatch):
    monkeypatch.setattr("trajsoup.study.train.processes.LOCK_SECONDS", 0)
    text = textwrap.dedent(SMALL.replace("    corpus: builtin\n", ""))
    study = study_in(tmp_path, fork_point, f'{text}trainer: {{command: "sleep 60"}}\n')
    plan = plan_study(study)
    process = command_process(plan, plan.runs[0], fork_point=fork_point, threads=1)
    with only_one(process) as lock:
        handle = start_branch(process, {}, lock=lock)
    try:  # nobody but the process holds it now
        with pytest.raises(TrainError, match="'EXP1' is being trained by another process"), only_one(process):
            pass
    finally:
        stop_branches([handle])
    with only_one(process):
        pass


def test_two_studies_that_want_the_same_fork_point_make_it_once(tmp_path):
    corpus = tokenised_corpus(tmp_path)
    text = SMALL.replace("fork_point: fork", "pretrain: {tokens: 4k, model: {hidden_size: 32, num_hidden_layers: 2}}")
    study = load_training_study(write_study(tmp_path / "study", text))
    jobs, inside = [], threading.Event()

    def pretend(job):
        jobs.append(job)
        inside.set()
        time.sleep(0.5)
        (job.folder / f"checkpoint-{job.horizon // job.step_tokens}").mkdir()

    def make():
        return ensure_fork_point(study, corpus, sequence_length=32, cache=tmp_path / "cache", run=pretend)

    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(make)
        inside.wait(60)
        second = pool.submit(make)
        assert first.result() == second.result()
    assert len(jobs) == 1


def test_arithmetic_that_cannot_work_is_refused_before_the_corpus_is_read(tmp_path, fork_point):
    study = study_in(tmp_path, fork_point, SMALL.replace("corpus: builtin", "corpus: no-such-folder"))
    with pytest.raises(RecipeError, match="not a multiple of checkpoint_every"):
        train_study(dataclasses.replace(study, horizon=2049), cache=tmp_path / "cache")


def test_a_tracker_that_is_not_installed_is_refused(tmp_path, fork_point, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    study = study_in(tmp_path, fork_point, SMALL + "    report_to: [trackio]\n")
    with pytest.raises(TrainError, match="trackio, which is not installed: pip install trackio"):
        train_study(study, cache=tmp_path / "cache")


def test_an_unknown_branch_is_refused_with_those_there_are(tmp_path, fork_point):
    study = study_in(tmp_path, fork_point, own_trainer(tmp_path))
    with pytest.raises(TrainError, match=r"no branch 'EXP9' .* it has EXP1, EXP2"):
        train_study(study, branches=["EXP9"], cache=tmp_path / "cache")


def test_the_fork_point_is_pretrained_once_and_cached_by_what_shapes_it(tmp_path):
    corpus = tokenised_corpus(tmp_path)
    text = SMALL.replace(
        "fork_point: fork", "pretrain: {tokens: 4k, model: {hidden_size: 32, num_hidden_layers: 2}, recipe: {seed: 3}}"
    )
    study = load_training_study(write_study(tmp_path / "study", text))
    jobs = []

    def pretend(job):
        jobs.append(job)
        done = job.folder / f"checkpoint-{job.horizon // job.step_tokens}"
        done.mkdir()
        (done / "model.safetensors").write_bytes((job.fork_point / "model.safetensors").read_bytes())

    def make(study, corpus=corpus):
        return ensure_fork_point(study, corpus, sequence_length=32, cache=tmp_path / "cache", run=pretend)

    first = make(study)
    assert make(study) == first
    assert len(jobs) == 1
    assert jobs[0].recipe.seed == 3
    assert jobs[0].tokens.digest == corpus.pretrain.digest
    assert [p.name for p in (tmp_path / "cache").glob("[!.]*")] == [first.name]
    changed = dataclasses.replace(study, baseline=dataclasses.replace(study.baseline, peak_lr=0.5))
    assert make(changed) == first
    assert study.pretrain is not None
    other = dataclasses.replace(study, pretrain=dataclasses.replace(study.pretrain, seed=1))
    assert make(other) != first
    assert len(jobs) == 2


def test_a_fork_point_with_too_few_embeddings_or_another_tokenizer_is_refused(tmp_path, fork_point):
    made = tokenised_corpus(tmp_path)
    study = study_in(
        tmp_path / "s", fork_point, SMALL.replace("builtin", f"{{train: {tmp_path / 'docs'}, vocab_size: 300}}")
    )
    with pytest.raises(CorpusError, match=r"has 257 embeddings.*has 273 tokens"):
        load_data(study, cache=tmp_path / "cache")
    fork = make_fork_point(tmp_path / "fork", vocab_size=400)
    (fork / "tokenizer.json").write_bytes((made.tokenizer / "tokenizer.json").read_bytes())
    (fork / "tokenizer_config.json").write_bytes((made.tokenizer / "tokenizer_config.json").read_bytes())
    other = f"{{train: {tmp_path / 'docs'}, tokenizer: {other_tokenizer(tmp_path)}}}"
    with pytest.raises(CorpusError, match="disagree: token"):
        load_data(study_in(tmp_path / "t", fork, SMALL.replace("builtin", other)), cache=tmp_path / "cache")


def test_pretraining_without_documents_is_refused(tmp_path):
    tokenised_corpus(tmp_path)
    text = SMALL.replace("fork_point: fork", "pretrain: {}").replace(
        "builtin", f"{{train: {tmp_path / 'docs'}, vocab_size: 300}}"
    )
    with pytest.raises(StudyError, match="`pretrain` needs documents"):
        load_data(load_training_study(write_study(tmp_path / "s", text)), cache=tmp_path / "cache")


def tokenised_corpus(folder):
    from trajsoup.lm.corpus import CorpusSpec, load_corpus

    documents = folder / "docs"
    documents.mkdir(exist_ok=True)
    for i in range(60):
        (documents / f"{i}.txt").write_text(f"Document {i} says {i * i} and {i**3}.\n" * 20)
    extra = folder / "pretrain.txt"
    extra.write_text("Something to read before. " * 300)
    spec = CorpusSpec(train=(documents,), pretrain=(extra,), vocab_size=300)
    return load_corpus(spec, cache=folder / "made")


def other_tokenizer(folder):
    from trajsoup.lm.tokenizer import train_tokenizer

    train_tokenizer(["quite another text, over and over"] * 50, folder / "other", vocab_size=280)
    return folder / "other"


def test_a_launcher_starts_the_processes_of_a_branch(tmp_path, fork_point):
    launcher = f"{sys.executable} {Path(__file__).parents[2] / 'lm' / 'launch_two.py'} {tmp_path / 'rendezvous'}"
    text = f"{SMALL}    trainer: {{builtin: {{sharding: fsdp2, launcher: {launcher}}}}}\n"
    study = study_in(tmp_path, fork_point, text)
    trained = train_study(study, branches=["EXP1"], cache=tmp_path / "cache", corpus=byte_corpus(tmp_path))
    assert trained.failed == ()
    state = tmp_path / "branches" / "EXP1" / "resume-state-2048"
    assert sorted(p.name for p in state.iterdir()) == ["process-0.pt", "process-1.pt"]
    assert (tmp_path / "branches" / "EXP1" / "checkpoint-8" / "model.safetensors").is_file()


@pytest.mark.slow
def test_a_real_transformers_script_trains_branches_and_resumes(tmp_path):
    import shutil

    from trajsoup.store.runs import scan_run

    corpus = tokenised_corpus(tmp_path)
    fork = make_fork_point(tmp_path / "model", vocab_size=300, eos_token_id=0)
    for file in corpus.tokenizer.iterdir():
        shutil.copyfile(file, fork / file.name)
    script = Path(__file__).parents[3] / "examples" / "run_clm.py"
    command = (
        f"{sys.executable} {script} --model {{fork_point}} --train {tmp_path / 'pretrain.txt'} --output_dir {{output_dir}} "
        "--learning_rate {peak_lr} --seed {seed} --batch {global_batch} --block {sequence_length} --max_steps {total_steps} "
        "--save_steps {checkpoint_steps}"
    )
    text = textwrap.dedent(SMALL.replace("    corpus: builtin\n", "")) + f'trainer: {{command: "{command}"}}\n'
    study = study_in(tmp_path / "s", fork, text)
    trained = train_study(study, cache=tmp_path / "cache")
    assert trained.failed == ()
    run = scan_run(tmp_path / "s" / "branches" / "EXP2")
    assert [s.tokens for s in run.checkpoints] == [1024, 2048]
    assert [s.step for s in run.checkpoints] == [4, 8]
    assert all(s.train_loss is not None for s in run.checkpoints)
    shutil.rmtree(tmp_path / "s" / "branches" / "EXP2" / "checkpoint-8")
    (tmp_path / "s" / "branches" / "EXP2" / "outcome.json").unlink()
    again = train_study(study, cache=tmp_path / "cache")
    assert again.failed == ()
