"""Strategies with servers: workers push a vector to the servers, and get a vector as the reply.

base               base class of the strategies with servers
parameter_server   workers push gradients, and get parameters
easgd              workers push parameters, and are coupled to a centre on the servers
push_pull          exchange of a worker with all owners of shards
prediction         closed form of the step time
exchange_flows     messages of an exchange, and the time that they need
saturation         step time of asynchronous workers that share links
"""

from services.strategies.server_based.base import ServerBasedStrategy
from services.strategies.server_based.easgd import Easgd
from services.strategies.server_based.parameter_server import ParameterServer

__all__ = ["Easgd", "ParameterServer", "ServerBasedStrategy"]
