"""Variances of initial weights."""

from collections.abc import Callable
from typing import TypeAlias

VarianceRule: TypeAlias = Callable[[int, int], float]  # (fan in, fan out) -> variance of the initial weights


def glorot_variance(fan_in: int, fan_out: int) -> float:
    """Return the initial weight variance for linear or tanh layers (Glorot).

    It preserves variances through such layers. X. Glorot, Y. Bengio, AISTATS 2010, eq. 12.
    """
    return 2 / (fan_in + fan_out)


def he_variance(fan_in: int, fan_out: int) -> float:  # noqa: ARG001 - one signature for both rules
    """Return the initial weight variance for layers with ReLU (He).

    It keeps the scale of signals constant through such layers. K. He et al., ICCV 2015, eq. 10.
    """
    return 2 / fan_in


def lecun_variance(fan_in: int, fan_out: int) -> float:  # noqa: ARG001 - one signature for all rules
    """Return the initial weight variance for linear layers after a normalisation (LeCun).

    It keeps the scale of signals constant in the forward pass. Y. LeCun et al., "Efficient BackProp", 1998, section
    4.6.
    """
    return 1 / fan_in
