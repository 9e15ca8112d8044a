"""Forward passes over many batches: several at once on a thread each, where one pass is too small for several threads.

A kernel of a small model ends before a second thread has woken. So the cores get a batch each instead of a share of every
kernel; that is faster, and then no sum depends on how many cores there are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from trajsoup.core.threads import threads_for

Work = TypeVar("Work")
Result = TypeVar("Result")


def forward_passes(
    model: Any, pass_tokens: int, run: Callable[[Work], Result], work: Iterable[Work]
) -> Iterator[Result]:
    """Run each piece of work, a pass of at most so many tokens, in inference mode; yield the results in order."""
    import torch

    parameters = sum(p.numel() for p in model.parameters())
    cores = torch.get_num_threads()
    each = threads_for(pass_flops=2.0 * parameters * pass_tokens, share=cores)
    on_cpu = all(p.device.type == "cpu" for p in model.parameters())

    def one(piece: Work) -> Result:
        with torch.inference_mode():
            return run(piece)

    if not on_cpu or each > 1 or cores == 1:
        yield from map(one, work)
        return
    with ThreadPoolExecutor(cores, initializer=torch.set_num_threads, initargs=(1,)) as pool:
        yield from pool.map(one, work)
