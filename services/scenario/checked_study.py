"""Name of the published study whose claims a report checks."""

from typing import Literal, TypeAlias, get_args

CheckedStudy: TypeAlias = Literal["arXiv:2509.03263"]  # Cortes, Juiz and Bermejo, on results of MLPerf Training v4.1
CHECKED_STUDIES: tuple[str, ...] = get_args(CheckedStudy)
