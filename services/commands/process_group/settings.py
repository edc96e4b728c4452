"""Settings of the process group in one node's process."""

from datetime import timedelta
from math import isclose
from pathlib import Path
from typing import Any, Self

from pydantic import Field, ValidationError, field_validator, model_validator

from services.cluster.addresses import Address
from services.collectives import AnyCollective, Collective, NetworkAndModelSizes, Ring
from services.compressors import AnyCompressor, Compressor, IdentityCompressor
from services.runtime.transport import DataProtection
from services.schema.component import FrozenRecord
from services.schema.errors import UserError
from services.strategies.command import compressor_of_type

DEFAULT_GROUP_LIMIT_S = 1800.0  # of PyTorch, if a script passes no timeout


class ProcessGroupSettings(FrozenRecord):
    """Settings of the process group in one node's process.

    They give the node and its peers, the collective and the number format of sums.
    """

    node: str  # name of this node
    peers: dict[str, Address]  # data addresses of all nodes, or of all but this one, by name
    ranks: tuple[str, ...]  # names of all nodes, by rank in the default group
    listen: Address  # at which this process accepts streams
    secrets: Path  # folder with the certificate and key of this node
    protection: DataProtection = "signed"  # of the messages between nodes
    dilation: float = Field(1.0, gt=0)  # wall seconds per virtual second
    collective: AnyCollective = Ring()  # all-reduce algorithm
    compress: AnyCompressor = IdentityCompressor()  # number format of sums of fp32 and fp64 tensors
    timeout_s: float = Field(60, gt=0)  # virtual seconds within which a message must arrive, unless a group has a limit
    plan: Path | None = (
        None  # plan of the trial, which defines the links that the transport emulates; None: no emulation
    )
    link_state_file: Path | None = None  # state of the links that several processes share; only with a plan
    racks: tuple[tuple[int, ...], ...] = ()  # ranks of each rack; empty: all ranks are in one

    @field_validator("listen", mode="before")
    @classmethod
    def _read_address(cls, value: Any) -> Any:
        return _to_address(value)

    @field_validator("peers", mode="before")
    @classmethod
    def _read_peers(cls, value: Any) -> Any:
        return {name: _to_address(address) for name, address in value.items()} if isinstance(value, dict) else value

    @field_validator("secrets", mode="before")
    @classmethod
    def _reject_missing_secrets(cls, value: Any) -> Any:
        if value is None:
            raise ValueError("streams between nodes need certificates; name the folder with ca.pem, cert.pem, key.pem")
        return value

    @model_validator(mode="after")
    def _reject_conflicts(self) -> Self:
        if self.node not in self.ranks:
            raise ValueError(f"node {self.node} has no rank; ranks lists {', '.join(self.ranks)}")
        if unknown := [name for name in self.ranks if name not in self.addresses]:
            raise ValueError(f"peers has no address of {', '.join(unknown)}")
        if self.compress.aggregation != "partial_sums":
            why = "collectives of tensors add partial sums, which need fp16, bf16 or identity"
            raise ValueError(f"{why}; compressor {self.compress.kind} compresses whole vectors")
        if conflict := self.collective.find_model_conflict((0,)):
            raise ValueError(f"remove {conflict[0]} of {self.collective.kind}: the tensors of a script differ in size")
        if reason := self.collective.unsupported_rank_count_reason(len(self.ranks)):
            raise ValueError(reason)
        if len(self._list_candidates(1, 4)) > 1:
            raise ValueError(f"collective {self.collective.kind} is not resolved; name another collective")
        return self

    def message_time_limit_s(self, group_time_limit: timedelta) -> float:
        """Return the virtual seconds in which messages of a group must arrive.

        `group_time_limit` is wall time. The default of PyTorch states nothing about a script, and would let a rank wait
        half an hour for one that has ended.
        """
        limit_s = group_time_limit.total_seconds() / self.dilation
        return self.timeout_s if isclose(limit_s, DEFAULT_GROUP_LIMIT_S) else limit_s

    @property
    def addresses(self) -> dict[str, Address]:
        """Data addresses of all nodes, by name."""
        return {**self.peers, self.node: self.listen}

    def choose_collective(self, entry_count: int, entry_bytes: int) -> Collective:
        """Return the collective, with all fields set, that sums a vector of this size."""
        return self._list_candidates(entry_count, entry_bytes)[0]

    def _list_candidates(self, entry_count: int, entry_bytes: int) -> tuple[Collective, ...]:
        racks = self.racks or (tuple(range(len(self.ranks))),)
        sizes = NetworkAndModelSizes(racks=racks, array_sizes=(entry_count,), entry_bytes=entry_bytes)
        return self.collective.list_auto_candidates(sizes)

    def compressor_of(self, type_name: str) -> Compressor:
        """Return the number format in which sums of entries of a type (a name of NumPy) are sent."""
        return compressor_of_type(self.compress, type_name)


def read_settings(settings: dict[str, Any]) -> ProcessGroupSettings:
    """Return the settings from their JSON form.

    Raises:
        UserError: a key is missing, unknown or has a wrong value.
    """
    try:
        return ProcessGroupSettings.model_validate(settings)
    except ValidationError as error:
        reasons = "; ".join(f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in error.errors())
        raise UserError(f"settings of the process group: {reasons}") from None


def _to_address(value: Any) -> Any:
    """Return an address that is written as [host, port]; return other values as they are."""
    if isinstance(value, list | tuple) and len(value) == len(Address.model_fields):
        return {"host": value[0], "port": value[1]}
    return value
