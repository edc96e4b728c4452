"""Laws of scaling: formulas with positive parameters, fit with intervals and judged by what they did not see.

base       the contract; `solver` fits many perturbed copies of a series at once
amdahl gustafson usl log_n           classic laws of T(N), to compare with
best_batch                           T(N) of who grows the batch as well as can be
critical_batch compute exchange      parts of training: samples to target, seconds of a step and of an exchange
parts                                T(N, batch) put together from such parts
backtest   how wrong a law was when the largest sizes were held back: what its bands are made of
"""

from typing import Annotated, TypeAlias

from pydantic import Field

from analysis.laws.amdahl import Amdahl
from analysis.laws.base import Band, Columns, Fit, Law, Noise
from analysis.laws.best_batch import BestBatch
from analysis.laws.compute import Compute
from analysis.laws.critical_batch import CriticalBatch
from analysis.laws.exchange import Exchange
from analysis.laws.gustafson import Gustafson
from analysis.laws.log_n import LogN
from analysis.laws.parts import Parts
from analysis.laws.usl import Usl

AnyLaw: TypeAlias = Annotated[
    Amdahl | Gustafson | Usl | LogN | BestBatch | CriticalBatch | Compute | Exchange | Parts,
    Field(discriminator="kind"),
]

__all__ = [
    "Amdahl",
    "AnyLaw",
    "Band",
    "BestBatch",
    "Columns",
    "Compute",
    "CriticalBatch",
    "Exchange",
    "Fit",
    "Gustafson",
    "Law",
    "LogN",
    "Noise",
    "Parts",
    "Usl",
]
