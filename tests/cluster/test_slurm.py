"""The job scripts: what they say, whether bash takes them, and, where Slurm is installed, whether they run."""

import dataclasses
import shutil
import subprocess

import pytest

from tests.cluster.slurm_daemons import slurm_for_tests
from tests.study.studies import write_study
from tests.study.tiny_study import load_study, make_fork_point, make_study
from trajsoup.errors import StudyError
from trajsoup.study.train.slurm import write_scripts


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    folder = tmp_path_factory.mktemp("slurm study")  # a blank in the path is part of the test
    return make_study(folder / "one", make_fork_point(folder / "fork"))


def test_the_array_has_one_task_for_each_branch(study):
    text = (write_scripts(study) / "branches.sbatch").read_text()
    assert "#SBATCH --array=0-2\n" in text
    assert "branches=(EXP1 EXP2 EXP3)" in text


def test_later_jobs_wait_for_earlier_ones(study):
    lines = (write_scripts(study) / "submit.sh").read_text().splitlines()
    assert [line.split(".sbatch")[0].split()[-1] for line in lines if "sbatch --" in line] == [
        "prepare",
        "branches",
        "finish",
    ]
    assert 'afterok:$prepare"' in lines[5]
    assert 'afterok:$branches"' in lines[6]


def test_bash_takes_every_script(study):
    for path in write_scripts(study).iterdir():
        if path.suffix in (".sbatch", ".sh"):
            subprocess.run(["bash", "-n", str(path)], check=True)


def trained_with(setup, **changes):
    return dataclasses.replace(setup, trainer=dataclasses.replace(setup.trainer, **changes))


def test_a_job_asks_for_what_the_study_declares(study):
    declared = trained_with(study, cpus=6, gpus=8, nodes=2, launcher="srun torchrun")
    folder = write_scripts(declared)
    branch = (folder / "branches.sbatch").read_text()
    for option in ("--cpus-per-task=6", "--gpus-per-node=8", "--nodes=2", "--ntasks-per-node=1"):
        assert f"#SBATCH {option}\n" in branch
    assert "--gpus" not in (folder / "prepare.sbatch").read_text()
    assert "--nodes" not in (folder / "finish.sbatch").read_text()


def test_a_branch_of_two_nodes_needs_a_launcher_that_reaches_them(study):
    with pytest.raises(StudyError, match=r"takes 2 nodes.*srun torchrun"):
        write_scripts(trained_with(study, nodes=2))


def test_runs_that_exist_have_nothing_to_train(tmp_path):
    path = write_study(tmp_path, "kind: runs\nbranches: {a: {checkpoints: [{path: c}]}}\ncorpus: {train: x}\n")
    with pytest.raises(StudyError, match="nothing is left to train"):
        write_scripts(load_study(path))


@pytest.mark.slow
def test_a_real_slurm_runs_the_chain_in_order(tmp_path, study):
    """The scripts as they are, their last line replaced by one that leaves a mark: Slurm is under test, not training."""
    with slurm_for_tests(tmp_path / "daemons") as slurm:
        folder = tmp_path / "scripts"
        shutil.copytree(write_scripts(study), folder)
        for path in folder.glob("*.sbatch"):
            *head, last = path.read_text().rstrip().split("\n")
            assert last.startswith("exec ")
            mark = f'echo "{path.stem} ${{SLURM_ARRAY_TASK_ID:-}} ${{branches[${{SLURM_ARRAY_TASK_ID:-0}}]:-}}"'
            path.write_text("\n".join([*head, f"{mark} >> {tmp_path / 'marks'}", ""]).replace("set -euo", "set -eo"))
        submit = folder / "submit.sh"
        submit.write_text(submit.read_text().replace(str(write_scripts(study)), str(folder)))
        slurm.run("sh", str(submit))
        slurm.wait_until_idle()
    marks = (tmp_path / "marks").read_text().splitlines()
    assert marks[0].startswith("prepare")
    assert sorted(marks[1:4]) == ["branches 0 EXP1", "branches 1 EXP2", "branches 2 EXP3"]
    assert marks[4].startswith("finish")
