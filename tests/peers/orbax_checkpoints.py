"""Run in Orbax's own environment: `FOLDER KIND` lets Orbax save the arrays of FOLDER/weights-N.npz, step N each.

KIND: standard (StandardCheckpointer), manager (CheckpointManager with parameters among optimizer state), zarr3, plain
(no OCDBT). Arrays are spread over two devices of the CPU where they can be.
"""

import os
import sys
from pathlib import Path

os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=2"
os.environ["JAX_PLATFORMS"] = "cpu"
import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
from jax.sharding import Mesh, NamedSharding, PartitionSpec


def nested(flat):
    found = {}
    for name, value in flat.items():
        *outer, last = name.split(".")
        inner = found
        for part in outer:
            inner = inner.setdefault(part, {})
        inner[last] = value
    return found


def spread(array):
    mesh = Mesh(np.array(jax.devices()), ("x",))
    if array.dtype == np.uint16:
        array = array.view(jnp.bfloat16)
    axes = [None] * array.ndim
    for axis in range(array.ndim):
        if array.shape[axis] % 2 == 0:
            axes[axis] = "x"
            break
    return jax.device_put(array, NamedSharding(mesh, PartitionSpec(*axes)))


def main(folder, kind):
    for file in sorted(folder.glob("weights-*.npz")):
        step = int(file.stem.split("-")[1])
        flat = {name: spread(array) for name, array in np.load(file).items()}
        tree = nested(flat)
        out = folder / kind / str(step)
        if kind == "manager":
            state = {"params": tree, "opt_state": {"mu": jax.tree.map(jnp.zeros_like, tree)}, "step": jnp.array(step)}
            with ocp.CheckpointManager((folder / kind).absolute()) as manager:
                manager.save(step, args=ocp.args.StandardSave(state))
        elif kind == "standard":
            with ocp.StandardCheckpointer() as saver:
                saver.save(out.absolute(), tree)
        else:
            handler = ocp.PyTreeCheckpointHandler(use_ocdbt=kind != "plain", use_zarr3=kind == "zarr3")
            with ocp.Checkpointer(handler) as saver:
                saver.save(out.absolute(), tree)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
