"""Typed sections of a scenario: dicts with the keys of a scenario file.

Unknown keys and wrong values are accepted here; the check of the scenario reports them, as those of a file.
"""

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

Keys: TypeAlias = Mapping[str, Any]


class ScenarioSection(dict[str, Any]):
    """Section of a scenario; keys that are None are left out."""

    def __init__(self, **keys: Any) -> None:
        """Create the section."""
        super().__init__({key: value for key, value in keys.items() if value is not None})


class AccessLinkSection(ScenarioSection):
    """Keys of the link between a node and the network, and limits of its container."""

    def __init__(  # noqa: PLR0913 - one argument per key
        self,
        *,
        link: str | None = None,
        uplink: str | None = None,
        downlink: str | None = None,
        delay: str | None = None,
        jitter: Keys | None = None,
        loss: Keys | None = None,
        buffer: str | None = None,
        memory: str | None = None,
        cpus: float | None = None,
        watts: Any = None,
        price: Any = None,
        **other_keys: Any,
    ) -> None:
        """Create the section; quantities have a unit, such as `"100mbit"` and `"5ms"`."""
        super().__init__(
            link=link,
            uplink=uplink,
            downlink=downlink,
            delay=delay,
            jitter=jitter,
            loss=loss,
            buffer=buffer,
            memory=memory,
            cpus=cpus,
            watts=watts,
            price=price,
            **other_keys,
        )


class Server(AccessLinkSection):
    """Properties of every parameter server: the section `cluster.server`."""


class Worker(AccessLinkSection):
    """Properties of every worker: the section `cluster.worker`."""

    def __init__(
        self,
        *,
        throughput: str | None = None,
        device: str | None = None,
        profile: str | None = None,
        utilisation: float | None = None,
        speed: float | None = None,
        variation: Keys | None = None,
        gpu_memory: str | None = None,
        **access_link: Any,
    ) -> None:
        """Create the section; a throughput is for example `"1000/s"`, samples per second."""
        super().__init__(
            throughput=throughput,
            device=device,
            profile=profile,
            utilisation=utilisation,
            speed=speed,
            variation=variation,
            gpu_memory=gpu_memory,
            **access_link,
        )


class Link(ScenarioSection):
    """Limits and delays between a pair of nodes: an item of the list `cluster.links`."""

    def __init__(
        self,
        *,
        nodes: Sequence[str] | None = None,
        link: str | None = None,
        rate: str | None = None,
        delay: str | None = None,
        jitter: Keys | None = None,
        loss: Keys | None = None,
        both_ways: bool | None = None,
        **other_keys: Any,
    ) -> None:
        """Create the section; `nodes` are two names, such as `("worker-0", "worker-1")`."""
        super().__init__(
            nodes=nodes,
            link=link,
            rate=rate,
            delay=delay,
            jitter=jitter,
            loss=loss,
            both_ways=both_ways,
            **other_keys,
        )


class Cluster(ScenarioSection):
    """The emulated cluster: the section `cluster`."""

    def __init__(
        self,
        *,
        workers: int | None = None,
        worker: Keys | None = None,
        server: Keys | None = None,
        groups: Sequence[Keys] | None = None,
        network: Keys | None = None,
        links: Sequence[Keys] | None = None,
        **other_keys: Any,
    ) -> None:
        """Create the section, for example `Cluster(workers=4, worker=Worker(throughput="1000/s"))`."""
        super().__init__(
            workers=workers, worker=worker, server=server, groups=groups, network=network, links=links, **other_keys
        )
