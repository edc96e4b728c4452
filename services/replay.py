"""Does the order of arrival explain a result? Computes a run again from its plan and the logs of its servers.

What an asynchronous server holds depends on nothing but the seed and on who came when. The log has that: which pushes
went into each update, and how old each was. The replay computes every gradient from the parameters that its worker had
read and lets the servers' own rules make the updates; the result must be the same bits.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from services.compressors import from_wire, to_wire
from services.datasets import Data
from services.device import HostArray
from services.errors import ProtocolError, UserError
from services.plan import Plan
from services.strategies import ParameterServer
from services.strategies.update_rules import Contribution, UpdateRule

Row: TypeAlias = Mapping[str, Any]  # of `shard_updates` or `shard_drops`, by column
Name: TypeAlias = tuple[int, int]  # of a push: worker and its step


class Arrivals(NamedTuple):
    """What one shard has logged, in the order in which it did."""

    updates: Sequence[Row]
    drops: Sequence[Row]


class _Computed(NamedTuple):
    """A push as it left its worker."""

    gradient: HostArray  # the whole vector
    read: tuple[HostArray, ...]  # the parameters that it was computed from, by shard


@dataclass
class _Shard:
    """One shard as it is replayed; versions are kept as long as somebody has yet to read them."""

    rule: UpdateRule
    updates: list[list[Row]]  # a list of rows per update, those to come
    reads: dict[Name, int]  # the version that a push was computed from
    versions: dict[int, HostArray] = field(init=False)
    version: int = 0

    def __post_init__(self) -> None:
        self.versions = {0: self.rule.params}

    def made(self, contributions: Sequence[Contribution]) -> None:
        """Make the next update; forget versions that nobody reads any more."""
        self.rule.update(contributions)
        self.version += 1
        self.versions[self.version] = self.rule.params
        del self.updates[0]
        oldest = min(self.reads.values(), default=self.version)
        self.versions = {version: held for version, held in self.versions.items() if version >= oldest}


def replay(plan: Plan, arrivals: Sequence[Arrivals]) -> HostArray:
    """The parameters, shape (parameters,), that the servers of a run must hold at its end; `arrivals` are by shard.

    Raises:
        UserError: the strategy pushes no gradients, or its number format remembers what it has sent.
        ProtocolError: the logs contradict themselves.
    """
    return _Replay.of(plan, arrivals).run()


@dataclass
class _Replay:
    plan: Plan
    strategy: ParameterServer
    data: Data
    shards: list[_Shard]
    uses: Counter[Name]  # updates, over all shards, that a push has yet to go into
    _computed: dict[Name, _Computed] = field(default_factory=dict)

    @classmethod
    def of(cls, plan: Plan, arrivals: Sequence[Arrivals]) -> "_Replay":
        strategy = plan.strategy
        if not isinstance(strategy, ParameterServer):
            raise UserError(f"{strategy.kind} has no order of arrival to replay; parameter_server has")
        if strategy.compress.init(1) is not None:
            raise UserError(f"{strategy.compress.kind} remembers what it has sent, which replays do not follow")
        data = plan.dataset.load(plan.dtype)
        first = plan.model.init(data.task, plan.seed, plan.dtype)
        uses = Counter(_name(row) for told in arrivals for row in told.updates)
        shards = [
            _Shard(
                strategy.update_rule(plan.optimiser, held.of(first), plan.workers),
                _by_version(told.updates),
                {push: version for push, version in _reads(told) if push in uses},
            )
            for held, told in zip(plan.shards, arrivals, strict=True)
        ]
        return cls(plan, strategy, data, shards, uses)

    def run(self) -> HostArray:
        while any(shard.updates for shard in self.shards):
            ready = [number for number, shard in enumerate(self.shards) if shard.updates and self._is_ready(shard)]
            if not ready:
                raise ProtocolError("the logs name versions that can't have existed yet")
            for number in ready:
                self._update(number)
        return np.concatenate([shard.rule.params for shard in self.shards])

    def _is_ready(self, shard: _Shard) -> bool:
        """Whether all gradients of its next update can be computed, or have been."""
        return all(self._can_be_read(_name(row)) for row in shard.updates[0])

    def _can_be_read(self, push: Name) -> bool:
        return push in self._computed or all(shard.reads[push] in shard.versions for shard in self.shards)

    def _update(self, number: int) -> None:
        rows = self.shards[number].updates[0]
        self.shards[number].made([self._contribution(number, row) for row in rows])
        for push in map(_name, rows):
            self.uses[push] -= 1
            if not self.uses[push]:
                del self._computed[push]

    def _compute(self, push: Name) -> _Computed:
        worker, step = push
        read = tuple(shard.versions[shard.reads.pop(push)] for shard in self.shards)
        share = self.plan.order.share(step, worker, (1,) * self.plan.workers)
        x, y = self.data.train_x[share], self.data.train_y[share]
        _, gradient = self.plan.model.loss_and_grad(self.data.task, np.concatenate(read), x, y)
        return _Computed(gradient, read)

    def _contribution(self, number: int, row: Row) -> Contribution:
        """What arrived of a push: through the number format and back."""
        push, shard = _name(row), self.plan.shards[number]
        if push not in self._computed:
            self._computed[push] = self._compute(push)
        computed = self._computed[push]
        payload, _ = self.strategy.compress.compress(shard.of(computed.gradient), None)
        vector = from_wire(self.strategy.compress, to_wire(payload), shard.size, self.plan.dtype)
        return Contribution(row["worker"], row["samples"], row["staleness"], vector, computed.read[number])


def _name(row: Row) -> Name:
    return row["worker"], row["push_step"]


def _by_version(updates: Sequence[Row]) -> list[list[Row]]:
    """The rows of each update, in order."""
    return [list(rows) for _, rows in groupby(updates, key=lambda row: row["version"])]


def _reads(told: Arrivals) -> Iterator[tuple[Name, int]]:
    """Every push with the version that it was computed from."""
    yield from ((_name(row), row["version"] - 1 - row["staleness"]) for row in told.updates)
    yield from ((_name(row), row["version"] - row["staleness"]) for row in told.drops)
