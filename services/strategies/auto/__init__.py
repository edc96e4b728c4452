"""Automatic choice of a strategy among candidates: `strategy` has the declaration, `candidates` the default list.

`quality` has the quality guard. The plan of a trial predicts the step time of each candidate (`services/plan/`).
"""

from services.strategies.auto.candidates import AnyCandidate, describe_candidate
from services.strategies.auto.quality import QualityGuard
from services.strategies.auto.strategy import AutoStrategy

__all__ = ["AnyCandidate", "AutoStrategy", "QualityGuard", "describe_candidate"]
