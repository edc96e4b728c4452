"""Which data planes are there? What `transport` says in a scenario, and who fulfils it."""

from collections.abc import Mapping

from services.scenario.scenario import TransportName
from services.transport.grpc.data import GrpcTransport
from services.transport.tcp.data import TcpTransport
from services.transport.wired import WiredTransport

PLANES: Mapping[TransportName, type[WiredTransport]] = {"grpc": GrpcTransport, "tcp": TcpTransport}
