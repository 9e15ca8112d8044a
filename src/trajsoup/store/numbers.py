"""Stored numbers as fp32, where a tensor is computed from others."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def fp32(raw: NDArray[np.uint8], dtype: str) -> NDArray[np.float32]:
    """The numbers of BF16, F16 or F32, exactly."""
    if dtype == "BF16":
        return np.left_shift(raw.view(np.uint16), np.uint32(16), dtype=np.uint32).view(np.float32)
    return raw.view(np.float16).astype(np.float32) if dtype == "F16" else raw.view(np.float32)
