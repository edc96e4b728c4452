"""Settings of a run that do not change the training: engine, transport, security, time limits, limits of fidelity."""

from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BeforeValidator, Field

from services.runtime.transport import DataProtection
from services.schema.component import FrozenRecord
from services.schema.units import Duration

EngineName: TypeAlias = Literal["docker", "local", "simulated"]
TransportName: TypeAlias = Literal["grpc", "tcp"]

MAX_PERCENT = 100


def _explain_percentage(share: Any) -> Any:
    """Raise ValueError if a share is written as a percentage, such as 95; return other values as they are."""
    if isinstance(share, int | float) and 1 < share <= MAX_PERCENT:
        raise ValueError(f"must be a share from 0 to 1, not {share:g}; write {share:g} % as {share / MAX_PERCENT:g}")
    return share


Share: TypeAlias = Annotated[float, Field(ge=0, le=1), BeforeValidator(_explain_percentage)]


class SecuritySettings(FrozenRecord):
    """Protection of the messages between nodes."""

    data: DataProtection = Field(
        "signed",
        description="protection of messages on the data network; signed: only the opening of a stream is signed, and "
        "later changes are not detected; authenticated: each message also has an authentication tag (MAC), so that "
        "altered, repeated or dropped messages are refused; tls: streams are encrypted too",
    )


class Timeouts(FrozenRecord):
    """Time limits, in virtual time, after which a node that waits for other nodes gives up."""

    start: Duration = Field(Duration("60s"), description="time for all nodes to join the trial")
    step: Duration = Field(
        Duration("60s"),
        description="time for one message to arrive; multiplied by the number of steps from one exchange to the next",
    )
    run: Duration = Field(Duration("1h"), description="time for the whole trial")


class FidelityLimits(FrozenRecord):
    """Limits on how far an emulated cluster may deviate from the declared cluster.

    Beyond these limits, a trial counts as degraded or invalid.
    """

    missed_deadlines: Share = Field(
        0.01,
        description="share of compute phases, of workers with a throughput, that miss their deadline by more than 1 ms "
        "of wall time, 5 % of the phase and 1 % of the step",
    )
    rate_error: Share = Field(0.05, description="relative error of the achieved rate of a link")
    host_cpu: Share = Field(0.90, description="share of the host's cores that are busy")
    host_share: Share = Field(
        0.10, description="share by which the median step is longer than the closed form, because of this host"
    )
    canary: Duration = Field(
        Duration("5ms"),
        description="wall time by which a thread that only sleeps (the canary) wakes late, at the 99th percentile",
    )
    throttled: Share = Field(
        0.01,
        description="share of the run during which a CPU quota held a node back; workers whose speed is declared as a "
        "quota are exempt",
    )
    event_lateness: Duration = Field(Duration("50ms"), description="wall time by which an event takes effect late")
    drops: Share = Field(0.001, description="share of packets that queues drop where no buffer and no loss is declared")
    round_trip: Duration = Field(
        Duration("1ms"),
        description="wall time by which a measured round trip differs from the declared one; 5 % of the round trip if "
        "that is more",
    )

    def message_time_tolerance_s(self, declared_message_s: float, time_dilation: float) -> float:
        """Return the allowed error of the time of one message, in virtual seconds.

        The error is the difference between the measured and the declared time. The tolerance is the rate error of the
        link plus that of a round trip, for the timers of this host.
        """
        return self.rate_error * declared_message_s + self.round_trip / time_dilation
