"""Registry of the data planes: the transport class for each value of the scenario key `transport`."""

from collections.abc import Mapping

from services.scenario.scenario import TransportName
from services.transport.grpc.data import GrpcTransport
from services.transport.tcp.data import TcpTransport
from services.transport.wired import SocketTransport

DATA_PLANES: Mapping[TransportName, type[SocketTransport]] = {"grpc": GrpcTransport, "tcp": TcpTransport}
