"""Runs, written for other tools. One exporter per file; `AnyExporter` is the registry that the command line shows.

base         what an exporter is
believed     may an exported trial be believed?
sound        which trials can be read, and what is wrong with the others
activities   steps, cut into what a worker did from when to when
system       MLCommons' description of a system
"""

from typing import Annotated, TypeAlias, get_args

from pydantic import Field

from analysis.exports.base import Exporter
from analysis.exports.chakra import Chakra
from analysis.exports.hta import Hta
from analysis.exports.mlperf import Mlperf
from analysis.exports.perfetto import Perfetto
from analysis.exports.tables import Csv
from analysis.exports.tensorboard import TensorBoard

AnyExporter: TypeAlias = Annotated[
    Mlperf | Perfetto | Hta | Chakra | TensorBoard | Csv,
    Field(discriminator="kind"),
]

EXPORTERS: dict[str, type[Exporter]] = {
    str(member.model_fields["kind"].default): member for member in get_args(get_args(AnyExporter)[0])
}

__all__ = ["EXPORTERS", "AnyExporter", "Exporter"]
