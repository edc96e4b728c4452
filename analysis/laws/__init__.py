"""Scaling laws: formulas fitted to training times.

The laws have uncertainties, and are tested on sizes not used in the fit.

base       base class of scaling laws, and their fit; `solver` fits many perturbed copies of a series at once
amdahl gustafson usl log_n           classic laws of the time T(N) on N workers
best_batch                           T(N) where the batch is always the best one
critical_batch step_time exchange    laws of single components: samples to target, seconds of a step, of an exchange
training_time                        T(N, batch), composed of the laws of samples and step time
checkpoint_interval                  best interval between checkpoints, and goodput under failures; not fitted
backtest   errors of a law at sizes not used in its fit; prediction bands are computed from these
"""

from typing import Annotated, TypeAlias

from pydantic import Field

from analysis.laws.amdahl import AmdahlLaw
from analysis.laws.base import LawFit, NoiseEstimate, PredictionBand, ScalingLaw, SeriesColumns
from analysis.laws.best_batch import BestBatchTrainingTimeLaw
from analysis.laws.critical_batch import CriticalBatchLaw
from analysis.laws.exchange import ExchangeTimeLaw
from analysis.laws.gustafson import GustafsonLaw
from analysis.laws.log_n import LogarithmicLaw
from analysis.laws.step_time import StepTimeLaw
from analysis.laws.training_time import TrainingTimeLaw
from analysis.laws.usl import UniversalScalabilityLaw

AnyScalingLaw: TypeAlias = Annotated[
    AmdahlLaw
    | GustafsonLaw
    | UniversalScalabilityLaw
    | LogarithmicLaw
    | BestBatchTrainingTimeLaw
    | CriticalBatchLaw
    | StepTimeLaw
    | ExchangeTimeLaw
    | TrainingTimeLaw,
    Field(discriminator="kind"),
]

__all__ = [
    "AmdahlLaw",
    "AnyScalingLaw",
    "BestBatchTrainingTimeLaw",
    "CriticalBatchLaw",
    "ExchangeTimeLaw",
    "GustafsonLaw",
    "LawFit",
    "LogarithmicLaw",
    "NoiseEstimate",
    "PredictionBand",
    "ScalingLaw",
    "SeriesColumns",
    "StepTimeLaw",
    "TrainingTimeLaw",
    "UniversalScalabilityLaw",
]
