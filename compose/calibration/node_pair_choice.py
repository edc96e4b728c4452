"""Choice of the two nodes that measure messages for an engine."""

from compose.calibration.container_pair import ContainerPair
from compose.calibration.node_pair import CalibrationNodePair
from compose.calibration.process_pair import ProcessPair
from compose.engines.base import TrialEngine
from compose.engines.containers.engine import DockerEngine
from services.scenario.run_settings import TransportName


def create_calibration_nodes(engine: TrialEngine, transport: TransportName) -> CalibrationNodePair:
    """Return two nodes that measure the message costs of a transport.

    The nodes are containers for the engine `docker`, else processes.
    """
    return ContainerPair(engine.images, transport) if isinstance(engine, DockerEngine) else ProcessPair(transport)
