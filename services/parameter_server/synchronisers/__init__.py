"""Synchronisers: policies by which workers and parameter servers wait for each other.

bsp        all workers wait for each other in every step
asp        no worker waits
ssp        a worker waits if it is too many steps ahead of the slowest
dssp       the same, with a bound that adapts to the speeds of the workers
backup     a step does not wait for its last gradients
gba        no worker waits; gradients for a global batch make an update
elastic    bsp that does not wait for stragglers
greedy     bsp that becomes asp while there is a straggler

`AnySynchroniser` is the registry: a scenario may name each member of this union by its `kind`.
"""

from typing import Annotated, TypeAlias

from pydantic import Field

from services.parameter_server.synchronisers.asp import Asp
from services.parameter_server.synchronisers.backup import BackupWorkers
from services.parameter_server.synchronisers.base import StragglerCriterion, Synchroniser
from services.parameter_server.synchronisers.bsp import Bsp
from services.parameter_server.synchronisers.dssp import Dssp
from services.parameter_server.synchronisers.elastic import ElasticSynchroniser
from services.parameter_server.synchronisers.gba import Gba
from services.parameter_server.synchronisers.greedy import GreedySynchroniser
from services.parameter_server.synchronisers.ssp import Ssp

AnySynchroniser: TypeAlias = Annotated[
    Bsp | Asp | Ssp | Dssp | BackupWorkers | Gba | ElasticSynchroniser | GreedySynchroniser, Field(discriminator="kind")
]

__all__ = [
    "AnySynchroniser",
    "Asp",
    "BackupWorkers",
    "Bsp",
    "Dssp",
    "ElasticSynchroniser",
    "Gba",
    "GreedySynchroniser",
    "Ssp",
    "StragglerCriterion",
    "Synchroniser",
]
