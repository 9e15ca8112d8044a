"""Methods: one file each. The order of these lines is the order of every table; a new method adds its own."""

# ruff: noqa: I001
from trajsoup.core.methods import raw_final as raw_final
from trajsoup.core.methods import raw_best as raw_best
from trajsoup.core.methods import single_merge as single_merge
from trajsoup.core.methods import model_soup as model_soup
from trajsoup.core.methods import full_soup as full_soup
from trajsoup.core.methods import trajectory_soup as trajectory_soup
from trajsoup.core.methods import inverse_variance as inverse_variance
from trajsoup.core.methods import quadratic as quadratic
from trajsoup.core.methods import swa as swa
from trajsoup.core.methods import lawa as lawa
from trajsoup.core.methods import ema as ema
from trajsoup.core.methods import pma as pma
from trajsoup.core.methods import wsm as wsm
from trajsoup.core.methods import extra_merge as extra_merge
from trajsoup.core.methods import greedy_soup as greedy_soup
from trajsoup.core.methods import learned_soup as learned_soup
from trajsoup.core.methods import trainable_averaging as trainable_averaging
from trajsoup.core.methods import model_stock as model_stock
from trajsoup.core.methods.table import METHODS as METHODS
