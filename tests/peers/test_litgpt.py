"""Branches trained by litgpt's own pretraining, in its own environment, as examples/litgpt.yaml does."""

import shutil
from pathlib import Path

import pytest
import yaml

from tests.lm.tiny_models import llama_config, make_model
from tests.study.train.test_branches import tokenised_corpus

ROOT = Path(__file__).parents[2]
PYTHON = ROOT / ".venv-litgpt" / "bin" / "python"

pytestmark = [
    pytest.mark.peers,
    pytest.mark.skipif(not PYTHON.exists(), reason=f"no litgpt at {PYTHON}: `make test-peers` installs it"),
]


def litgpt_study(folder):
    """The example's study, smaller: two branches of eight steps."""
    corpus = tokenised_corpus(folder)
    fork = folder / "fork-point"
    make_model(llama_config(corpus.vocab_size, bos_token_id=0, eos_token_id=0)).save_pretrained(fork)
    for file in corpus.tokenizer.iterdir():
        shutil.copyfile(file, fork / file.name)
    (folder / "texts").mkdir()
    for i in range(3):
        (folder / "texts" / f"{i}.txt").write_text("".join(f"{i} and {j} make {i + j}.\n" for j in range(1500)))
    study = yaml.safe_load((ROOT / "examples" / "litgpt.yaml").read_text())
    command = study["trainer"]["command"].replace(".venv-litgpt/bin/python litgpt_branch.py", "PYTHON SCRIPT")
    command = command.replace("PYTHON", str(PYTHON)).replace("SCRIPT", str(ROOT / "examples" / "litgpt_branch.py"))
    study["trainer"]["command"] = command.replace("--train texts", f"--train {folder / 'texts'}")
    study |= {"sequence_length": 32, "horizon": 8 * 8 * 32, "checkpoint_every": 4 * 8 * 32}
    (folder / "study.yaml").write_text(yaml.safe_dump(study))
    return folder / "study.yaml"


@pytest.mark.timeout(900)
def test_litgpt_trains_two_branches_from_one_fork_point_and_resumes(tmp_path):
    from safetensors.torch import load_file

    from trajsoup.store.checkpoint import open_checkpoint, require_same
    from trajsoup.store.runs import scan_run
    from trajsoup.study.file.study import load_training_study
    from trajsoup.study.train.branches import train_study

    study = load_training_study(litgpt_study(tmp_path))
    trained = train_study(study, jobs=1, cache=tmp_path / "cache")  # both share litgpt's preprocessed texts
    assert trained.failed == ()
    branches = {name: tmp_path / "branches" / name for name in ("EXP1", "EXP2")}
    for folder in branches.values():
        run = scan_run(folder)
        assert [s.tokens for s in run.checkpoints] == [1024, 2048]
        assert run.checkpoints[1].train_loss < run.checkpoints[0].train_loss
        require_same(open_checkpoint(tmp_path / "fork-point"), open_checkpoint(folder / "checkpoint-8"))
    one, other, fork = (
        load_file(folder / "model.safetensors")
        for folder in (branches["EXP1"] / "checkpoint-8", branches["EXP2"] / "checkpoint-8", tmp_path / "fork-point")
    )
    changed = {name: (one[name] - fork[name]).norm() / fork[name].norm() for name in fork}
    assert 0 < max(changed.values()) < 0.5, "eight small steps away from the fork point, not another model"
    assert any((one[name] != other[name]).any() for name in fork)

    killed = branches["EXP2"]  # as if it had been killed between its two checkpoints
    shutil.rmtree(killed / "checkpoint-8")
    shutil.rmtree(killed / ".litgpt" / "step-00000008")
    shutil.rmtree(killed / ".litgpt" / "final")
    (killed / "outcome.json").unlink()
    assert train_study(study, jobs=1, cache=tmp_path / "cache").failed == ()
    assert [s.tokens for s in scan_run(killed).checkpoints] == [1024, 2048]
