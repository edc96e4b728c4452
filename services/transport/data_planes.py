"""Registry of the data planes: the transport class for each value of the scenario key `transport`."""

from collections.abc import Mapping

from services.scenario.run_settings import TransportName
from services.transport.grpc.data_plane import GrpcTransport
from services.transport.socket_transport import SocketTransport
from services.transport.tcp.data_plane import TcpTransport

DATA_PLANES: Mapping[TransportName, type[SocketTransport]] = {"grpc": GrpcTransport, "tcp": TcpTransport}
