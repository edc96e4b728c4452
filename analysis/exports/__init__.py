"""Exporters, which convert a run into the file formats of other tools. One exporter per file.

`AnyExporter` is the registry: its members are the formats that `ensayo export` offers.

base                contract of an exporter
trial_verdict       verdict on an exported trial: valid, degraded or invalid
readable_trials     reading of a run's undamaged data
activities          begin and end of each activity (compute, wait, …) in a training step
system_description  MLCommons' description of a system
"""

from typing import Annotated, TypeAlias, get_args

from pydantic import Field

from analysis.exports.base import Exporter
from analysis.exports.chakra import ChakraExporter
from analysis.exports.csv_tables import CsvExporter
from analysis.exports.hta import HtaExporter
from analysis.exports.mlperf import MlperfExporter
from analysis.exports.perfetto import PerfettoExporter
from analysis.exports.tensorboard import TensorBoardExporter

AnyExporter: TypeAlias = Annotated[
    MlperfExporter | PerfettoExporter | HtaExporter | ChakraExporter | TensorBoardExporter | CsvExporter,
    Field(discriminator="kind"),
]

EXPORTERS: dict[str, type[Exporter]] = {
    str(member.model_fields["kind"].default): member for member in get_args(get_args(AnyExporter)[0])
}

__all__ = ["EXPORTERS", "AnyExporter", "Exporter"]
