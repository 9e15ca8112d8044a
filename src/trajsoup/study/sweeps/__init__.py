"""Sweeps: one file each. The order of these lines is that of `sweeps: paper`; a new sweep adds its own."""

# ruff: noqa: I001
from trajsoup.study.sweeps import crossing as crossing
from trajsoup.study.sweeps import prescribed as prescribed
from trajsoup.study.sweeps import prescribed_scaling as prescribed_scaling
from trajsoup.study.sweeps import horizons as horizons
from trajsoup.study.sweeps import coefficients as coefficients
from trajsoup.study.sweeps import selections as selections
from trajsoup.study.sweeps import allocation as allocation
from trajsoup.study.sweeps import sampling as sampling
from trajsoup.study.sweeps import scaling as scaling
from trajsoup.study.sweeps import interpolation as interpolation
from trajsoup.study.sweeps import frontier as frontier
from trajsoup.study.sweeps import region as region
from trajsoup.study.sweeps import methods as methods
from trajsoup.study.sweeps.table import SWEEPS as SWEEPS
