from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional

DESCRIPTOR: _descriptor.FileDescriptor

class MetricsReport(_message.Message):
    __slots__ = ("node_name", "step", "samples", "values")
    class ValuesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    NODE_NAME_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    SAMPLES_FIELD_NUMBER: _ClassVar[int]
    VALUES_FIELD_NUMBER: _ClassVar[int]
    node_name: str
    step: int
    samples: int
    values: _containers.ScalarMap[str, float]
    def __init__(self, node_name: _Optional[str] = ..., step: _Optional[int] = ..., samples: _Optional[int] = ..., values: _Optional[_Mapping[str, float]] = ...) -> None: ...

class FirstStep(_message.Message):
    __slots__ = ("node_name", "begin_s")
    NODE_NAME_FIELD_NUMBER: _ClassVar[int]
    BEGIN_S_FIELD_NUMBER: _ClassVar[int]
    node_name: str
    begin_s: float
    def __init__(self, node_name: _Optional[str] = ..., begin_s: _Optional[float] = ...) -> None: ...

class ProcessEndReport(_message.Message):
    __slots__ = ("node_name", "description", "has_lost_connection")
    NODE_NAME_FIELD_NUMBER: _ClassVar[int]
    DESCRIPTION_FIELD_NUMBER: _ClassVar[int]
    HAS_LOST_CONNECTION_FIELD_NUMBER: _ClassVar[int]
    node_name: str
    description: str
    has_lost_connection: bool
    def __init__(self, node_name: _Optional[str] = ..., description: _Optional[str] = ..., has_lost_connection: _Optional[bool] = ...) -> None: ...

class ProcessEndCause(_message.Message):
    __slots__ = ("description",)
    DESCRIPTION_FIELD_NUMBER: _ClassVar[int]
    description: str
    def __init__(self, description: _Optional[str] = ...) -> None: ...

class CommandEnd(_message.Message):
    __slots__ = ("node_name", "step", "samples", "last_step_end_s")
    NODE_NAME_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    SAMPLES_FIELD_NUMBER: _ClassVar[int]
    LAST_STEP_END_S_FIELD_NUMBER: _ClassVar[int]
    node_name: str
    step: int
    samples: int
    last_step_end_s: float
    def __init__(self, node_name: _Optional[str] = ..., step: _Optional[int] = ..., samples: _Optional[int] = ..., last_step_end_s: _Optional[float] = ...) -> None: ...

class JoinRequest(_message.Message):
    __slots__ = ("node_name", "plan_sha256")
    NODE_NAME_FIELD_NUMBER: _ClassVar[int]
    PLAN_SHA256_FIELD_NUMBER: _ClassVar[int]
    node_name: str
    plan_sha256: str
    def __init__(self, node_name: _Optional[str] = ..., plan_sha256: _Optional[str] = ...) -> None: ...

class RunStart(_message.Message):
    __slots__ = ("start_s",)
    START_S_FIELD_NUMBER: _ClassVar[int]
    start_s: float
    def __init__(self, start_s: _Optional[float] = ...) -> None: ...

class StepReport(_message.Message):
    __slots__ = ("node_name", "step")
    NODE_NAME_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    node_name: str
    step: int
    def __init__(self, node_name: _Optional[str] = ..., step: _Optional[int] = ...) -> None: ...

class StepAck(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class EventRequest(_message.Message):
    __slots__ = ("node_name", "event_number")
    NODE_NAME_FIELD_NUMBER: _ClassVar[int]
    EVENT_NUMBER_FIELD_NUMBER: _ClassVar[int]
    node_name: str
    event_number: int
    def __init__(self, node_name: _Optional[str] = ..., event_number: _Optional[int] = ...) -> None: ...

class EventStart(_message.Message):
    __slots__ = ("start_s",)
    START_S_FIELD_NUMBER: _ClassVar[int]
    start_s: float
    def __init__(self, start_s: _Optional[float] = ...) -> None: ...

class EvaluationPointReport(_message.Message):
    __slots__ = ("node_name", "number", "steps", "samples", "loss_sum", "loss_samples", "parameters", "parameters_sha256")
    NODE_NAME_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    STEPS_FIELD_NUMBER: _ClassVar[int]
    SAMPLES_FIELD_NUMBER: _ClassVar[int]
    LOSS_SUM_FIELD_NUMBER: _ClassVar[int]
    LOSS_SAMPLES_FIELD_NUMBER: _ClassVar[int]
    PARAMETERS_FIELD_NUMBER: _ClassVar[int]
    PARAMETERS_SHA256_FIELD_NUMBER: _ClassVar[int]
    node_name: str
    number: int
    steps: int
    samples: int
    loss_sum: float
    loss_samples: int
    parameters: bytes
    parameters_sha256: str
    def __init__(self, node_name: _Optional[str] = ..., number: _Optional[int] = ..., steps: _Optional[int] = ..., samples: _Optional[int] = ..., loss_sum: _Optional[float] = ..., loss_samples: _Optional[int] = ..., parameters: _Optional[bytes] = ..., parameters_sha256: _Optional[str] = ...) -> None: ...

class RunDecision(_message.Message):
    __slots__ = ("stop", "stop_reason", "must_switch_strategy")
    STOP_FIELD_NUMBER: _ClassVar[int]
    STOP_REASON_FIELD_NUMBER: _ClassVar[int]
    MUST_SWITCH_STRATEGY_FIELD_NUMBER: _ClassVar[int]
    stop: bool
    stop_reason: str
    must_switch_strategy: bool
    def __init__(self, stop: _Optional[bool] = ..., stop_reason: _Optional[str] = ..., must_switch_strategy: _Optional[bool] = ...) -> None: ...

class WaitRequest(_message.Message):
    __slots__ = ("node_name",)
    NODE_NAME_FIELD_NUMBER: _ClassVar[int]
    node_name: str
    def __init__(self, node_name: _Optional[str] = ...) -> None: ...

class StrategySwitchCall(_message.Message):
    __slots__ = ("must_switch_strategy",)
    MUST_SWITCH_STRATEGY_FIELD_NUMBER: _ClassVar[int]
    must_switch_strategy: bool
    def __init__(self, must_switch_strategy: _Optional[bool] = ...) -> None: ...

class StrategySwitchState(_message.Message):
    __slots__ = ("node_name", "stage", "next_step", "version", "samples", "updates", "params_digests", "state_digests", "failure", "is_server", "epoch")
    NODE_NAME_FIELD_NUMBER: _ClassVar[int]
    STAGE_FIELD_NUMBER: _ClassVar[int]
    NEXT_STEP_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    SAMPLES_FIELD_NUMBER: _ClassVar[int]
    UPDATES_FIELD_NUMBER: _ClassVar[int]
    PARAMS_DIGESTS_FIELD_NUMBER: _ClassVar[int]
    STATE_DIGESTS_FIELD_NUMBER: _ClassVar[int]
    FAILURE_FIELD_NUMBER: _ClassVar[int]
    IS_SERVER_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    node_name: str
    stage: str
    next_step: int
    version: int
    samples: int
    updates: int
    params_digests: _containers.RepeatedScalarFieldContainer[str]
    state_digests: _containers.RepeatedScalarFieldContainer[str]
    failure: str
    is_server: bool
    epoch: int
    def __init__(self, node_name: _Optional[str] = ..., stage: _Optional[str] = ..., next_step: _Optional[int] = ..., version: _Optional[int] = ..., samples: _Optional[int] = ..., updates: _Optional[int] = ..., params_digests: _Optional[_Iterable[str]] = ..., state_digests: _Optional[_Iterable[str]] = ..., failure: _Optional[str] = ..., is_server: _Optional[bool] = ..., epoch: _Optional[int] = ...) -> None: ...

class StrategySwitchDecision(_message.Message):
    __slots__ = ("action", "abort_reason", "first_step", "version", "samples", "updates")
    ACTION_FIELD_NUMBER: _ClassVar[int]
    ABORT_REASON_FIELD_NUMBER: _ClassVar[int]
    FIRST_STEP_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    SAMPLES_FIELD_NUMBER: _ClassVar[int]
    UPDATES_FIELD_NUMBER: _ClassVar[int]
    action: str
    abort_reason: str
    first_step: int
    version: int
    samples: int
    updates: int
    def __init__(self, action: _Optional[str] = ..., abort_reason: _Optional[str] = ..., first_step: _Optional[int] = ..., version: _Optional[int] = ..., samples: _Optional[int] = ..., updates: _Optional[int] = ...) -> None: ...

class LeaveRequest(_message.Message):
    __slots__ = ("node_name", "parameters", "version", "samples")
    NODE_NAME_FIELD_NUMBER: _ClassVar[int]
    PARAMETERS_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    SAMPLES_FIELD_NUMBER: _ClassVar[int]
    node_name: str
    parameters: bytes
    version: int
    samples: int
    def __init__(self, node_name: _Optional[str] = ..., parameters: _Optional[bytes] = ..., version: _Optional[int] = ..., samples: _Optional[int] = ...) -> None: ...

class LeaveAck(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class MembershipRequest(_message.Message):
    __slots__ = ("node_name", "known_epoch")
    NODE_NAME_FIELD_NUMBER: _ClassVar[int]
    KNOWN_EPOCH_FIELD_NUMBER: _ClassVar[int]
    node_name: str
    known_epoch: int
    def __init__(self, node_name: _Optional[str] = ..., known_epoch: _Optional[int] = ...) -> None: ...

class MembershipEpoch(_message.Message):
    __slots__ = ("epoch", "workers", "joined", "needs_common_step")
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    WORKERS_FIELD_NUMBER: _ClassVar[int]
    JOINED_FIELD_NUMBER: _ClassVar[int]
    NEEDS_COMMON_STEP_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    workers: _containers.RepeatedScalarFieldContainer[str]
    joined: _containers.RepeatedScalarFieldContainer[str]
    needs_common_step: bool
    def __init__(self, epoch: _Optional[int] = ..., workers: _Optional[_Iterable[str]] = ..., joined: _Optional[_Iterable[str]] = ..., needs_common_step: _Optional[bool] = ...) -> None: ...

class RecoveryReport(_message.Message):
    __slots__ = ("node_name", "epoch", "steps")
    NODE_NAME_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    STEPS_FIELD_NUMBER: _ClassVar[int]
    node_name: str
    epoch: int
    steps: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, node_name: _Optional[str] = ..., epoch: _Optional[int] = ..., steps: _Optional[_Iterable[int]] = ...) -> None: ...

class CheckpointReport(_message.Message):
    __slots__ = ("node_name", "epoch", "step", "bytes", "digest")
    NODE_NAME_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    node_name: str
    epoch: int
    step: int
    bytes: int
    digest: str
    def __init__(self, node_name: _Optional[str] = ..., epoch: _Optional[int] = ..., step: _Optional[int] = ..., bytes: _Optional[int] = ..., digest: _Optional[str] = ...) -> None: ...

class CheckpointProposal(_message.Message):
    __slots__ = ("node_name", "epoch", "step")
    NODE_NAME_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    node_name: str
    epoch: int
    step: int
    def __init__(self, node_name: _Optional[str] = ..., epoch: _Optional[int] = ..., step: _Optional[int] = ...) -> None: ...

class CheckpointWait(_message.Message):
    __slots__ = ("node_name", "epoch", "known_step")
    NODE_NAME_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    KNOWN_STEP_FIELD_NUMBER: _ClassVar[int]
    node_name: str
    epoch: int
    known_step: int
    def __init__(self, node_name: _Optional[str] = ..., epoch: _Optional[int] = ..., known_step: _Optional[int] = ...) -> None: ...

class CheckpointStep(_message.Message):
    __slots__ = ("step",)
    STEP_FIELD_NUMBER: _ClassVar[int]
    step: int
    def __init__(self, step: _Optional[int] = ...) -> None: ...

class RecoveryDecision(_message.Message):
    __slots__ = ("epoch", "first_step", "state_source", "state_receivers")
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    FIRST_STEP_FIELD_NUMBER: _ClassVar[int]
    STATE_SOURCE_FIELD_NUMBER: _ClassVar[int]
    STATE_RECEIVERS_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    first_step: int
    state_source: str
    state_receivers: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, epoch: _Optional[int] = ..., first_step: _Optional[int] = ..., state_source: _Optional[str] = ..., state_receivers: _Optional[_Iterable[str]] = ...) -> None: ...
