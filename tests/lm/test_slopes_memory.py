"""Learning over many checkpoints holds one gradient beside the model, never a stack of checkpoints."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """
import json, sys
from tests.lm.test_slopes import option, answers
from tests.lm.tiny_models import llama_config, save_checkpoints
from trajsoup.core.methods.asking import Descend
from trajsoup.lm.live import load_model
from pathlib import Path
import torch

def kilobytes(name):
    return int(next(line.split()[1] for line in open("/proc/self/status") if line.startswith(name + ":")))

torch.set_num_threads(1)
config = llama_config(hidden_size=512, intermediate_size=1024, num_hidden_layers=6, num_attention_heads=8)
checkpoints = save_checkpoints(Path(sys.argv[1]), config, count=24, dtype=torch.bfloat16)
keys = tuple(checkpoints)
slopes = answers(checkpoints)
slopes._model = load_model(checkpoints[keys[0]])
small = save_checkpoints(Path(sys.argv[2]), llama_config(), count=24, dtype=torch.bfloat16)
answers(small)(Descend(option=option(dict.fromkeys(keys, 1 / 24)), keys=keys, batch=0))  # libraries, compiled kernels
with torch.inference_mode():
    slopes._model(torch.arange(16)[None])
before = kilobytes("VmRSS")
for step in range(2):
    slopes(Descend(option=option(dict.fromkeys(keys, 1 / 24)), keys=keys, batch=step))
open("/proc/self/clear_refs", "w").write("5")
slopes(Descend(option=option(dict.fromkeys(keys, 1 / 24)), keys=keys, batch=2))
model = sum(p.numel() * p.element_size() for p in slopes._model.parameters()) / 1024
print(json.dumps({"model": model, "beyond": kilobytes("VmHWM") - before}))
"""


@pytest.mark.slow
def test_memory_beyond_one_model_is_at_most_two(tmp_path):
    (tmp_path / "large").mkdir()
    (tmp_path / "small").mkdir()
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(tmp_path / "large"), str(tmp_path / "small")],
        capture_output=True,
        text=True,
        timeout=600,
        cwd=Path(__file__).parents[2],
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["beyond"] <= 2 * found["model"], found
