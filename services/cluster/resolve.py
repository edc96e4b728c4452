"""How do ports, a topology and extra links become one network?"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import permutations

from services.cluster.network_model import Network, Path, Pipe
from services.cluster.port import Port
from services.cluster.topologies import Member, PairLink, Topology


def resolve(
    topology: Topology, links: Sequence[PairLink], members: Sequence[Member], ports: Mapping[str, Port]
) -> Network:
    """The network between the nodes of a trial.

    Args:
        topology: what lies between the nodes.
        links: pairs of nodes with limits or delays of their own; those of absent nodes are left out.
        members: all nodes on the data network.
        ports: by node name, without profiles.
    """
    names = {member.name for member in members}
    present = [link.resolved for link in links if set(link.nodes) <= names]
    limits = (
        Pipe(name=f"{a} to {b}", rate_bps=link.rate, sources=(a,), targets=(b,))
        for link in present
        for a, b in link.ways
        if link.rate
    )
    parts = [*topology.paths(members), *(part for link in present for part in _of_link(link))]
    return Network(pipes=(*limits, *topology.pipes(members)), paths=tuple(_joined(members, ports, parts)))


def _of_link(link: PairLink) -> Iterable[Path]:
    for source, target in link.ways:
        yield Path(
            source=source,
            target=target,
            delay_s=link.delay or 0.0,
            jitters=(link.jitter,) if link.jitter else (),
            losses=(link.loss,) if link.loss else (),
        )


def _joined(members: Sequence[Member], ports: Mapping[str, Port], parts: Iterable[Path]) -> Iterable[Path]:
    """One path for every ordered pair that has a delay or a loss anywhere on its way."""
    between: defaultdict[tuple[str, str], list[Path]] = defaultdict(list)
    for part in parts:
        between[part.source, part.target].append(part)
    for a, b in permutations((member.name for member in members), 2):
        own = [ports[a], ports[b]]
        path = Path(
            source=a,
            target=b,
            delay_s=sum(port.delay or 0.0 for port in own) + sum(part.delay_s for part in between[a, b]),
            jitters=(
                *(port.jitter for port in own if port.jitter),
                *(jitter for part in between[a, b] for jitter in part.jitters),
            ),
            losses=(
                *(port.loss for port in own if port.loss),
                *(loss for part in between[a, b] for loss in part.losses),
            ),
        )
        if path.delay_s or path.losses:
            yield path
