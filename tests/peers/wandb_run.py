"""Run in W&B's own environment: `FOLDER` gets the offline run that W&B leaves of a few logged losses."""

import os
import sys

os.environ |= {"WANDB_MODE": "offline", "WANDB_SILENT": "true"}
import wandb

run = wandb.init(project="p", dir=sys.argv[1])
for step in (10, 20, 30):
    run.log({"train/loss": 3.0 - step / 100, "train/tokens": step * 1000, "text": "x" * 40_000}, step=step)
    run.log({"eval": {"loss": 2.0 - step / 100}}, step=step)
run.finish()
