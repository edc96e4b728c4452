from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable
from typing import ClassVar as _ClassVar, Optional as _Optional

DESCRIPTOR: _descriptor.FileDescriptor

class Joined(_message.Message):
    __slots__ = ("node", "plan_sha256")
    NODE_FIELD_NUMBER: _ClassVar[int]
    PLAN_SHA256_FIELD_NUMBER: _ClassVar[int]
    node: str
    plan_sha256: str
    def __init__(self, node: _Optional[str] = ..., plan_sha256: _Optional[str] = ...) -> None: ...

class Released(_message.Message):
    __slots__ = ("at",)
    AT_FIELD_NUMBER: _ClassVar[int]
    at: float
    def __init__(self, at: _Optional[float] = ...) -> None: ...

class StepReached(_message.Message):
    __slots__ = ("node", "step")
    NODE_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    node: str
    step: int
    def __init__(self, node: _Optional[str] = ..., step: _Optional[int] = ...) -> None: ...

class Noted(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Awaited(_message.Message):
    __slots__ = ("node", "event")
    NODE_FIELD_NUMBER: _ClassVar[int]
    EVENT_FIELD_NUMBER: _ClassVar[int]
    node: str
    event: int
    def __init__(self, node: _Optional[str] = ..., event: _Optional[int] = ...) -> None: ...

class Begun(_message.Message):
    __slots__ = ("at",)
    AT_FIELD_NUMBER: _ClassVar[int]
    at: float
    def __init__(self, at: _Optional[float] = ...) -> None: ...

class EpochEnded(_message.Message):
    __slots__ = ("node", "epoch", "steps", "samples", "loss_sum", "loss_samples", "parameters", "parameters_sha256")
    NODE_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    STEPS_FIELD_NUMBER: _ClassVar[int]
    SAMPLES_FIELD_NUMBER: _ClassVar[int]
    LOSS_SUM_FIELD_NUMBER: _ClassVar[int]
    LOSS_SAMPLES_FIELD_NUMBER: _ClassVar[int]
    PARAMETERS_FIELD_NUMBER: _ClassVar[int]
    PARAMETERS_SHA256_FIELD_NUMBER: _ClassVar[int]
    node: str
    epoch: int
    steps: int
    samples: int
    loss_sum: float
    loss_samples: int
    parameters: bytes
    parameters_sha256: str
    def __init__(self, node: _Optional[str] = ..., epoch: _Optional[int] = ..., steps: _Optional[int] = ..., samples: _Optional[int] = ..., loss_sum: _Optional[float] = ..., loss_samples: _Optional[int] = ..., parameters: _Optional[bytes] = ..., parameters_sha256: _Optional[str] = ...) -> None: ...

class Decision(_message.Message):
    __slots__ = ("stop", "reason", "hand_over")
    STOP_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    HAND_OVER_FIELD_NUMBER: _ClassVar[int]
    stop: bool
    reason: str
    hand_over: bool
    def __init__(self, stop: _Optional[bool] = ..., reason: _Optional[str] = ..., hand_over: _Optional[bool] = ...) -> None: ...

class Summons(_message.Message):
    __slots__ = ("hand_over",)
    HAND_OVER_FIELD_NUMBER: _ClassVar[int]
    hand_over: bool
    def __init__(self, hand_over: _Optional[bool] = ...) -> None: ...

class Held(_message.Message):
    __slots__ = ("node", "round", "step", "version", "samples", "updates", "params", "state", "failure", "serves")
    NODE_FIELD_NUMBER: _ClassVar[int]
    ROUND_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    SAMPLES_FIELD_NUMBER: _ClassVar[int]
    UPDATES_FIELD_NUMBER: _ClassVar[int]
    PARAMS_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    FAILURE_FIELD_NUMBER: _ClassVar[int]
    SERVES_FIELD_NUMBER: _ClassVar[int]
    node: str
    round: str
    step: int
    version: int
    samples: int
    updates: int
    params: _containers.RepeatedScalarFieldContainer[str]
    state: _containers.RepeatedScalarFieldContainer[str]
    failure: str
    serves: bool
    def __init__(self, node: _Optional[str] = ..., round: _Optional[str] = ..., step: _Optional[int] = ..., version: _Optional[int] = ..., samples: _Optional[int] = ..., updates: _Optional[int] = ..., params: _Optional[_Iterable[str]] = ..., state: _Optional[_Iterable[str]] = ..., failure: _Optional[str] = ..., serves: _Optional[bool] = ...) -> None: ...

class Ruling(_message.Message):
    __slots__ = ("verb", "reason", "step", "version", "samples", "updates")
    VERB_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    SAMPLES_FIELD_NUMBER: _ClassVar[int]
    UPDATES_FIELD_NUMBER: _ClassVar[int]
    verb: str
    reason: str
    step: int
    version: int
    samples: int
    updates: int
    def __init__(self, verb: _Optional[str] = ..., reason: _Optional[str] = ..., step: _Optional[int] = ..., version: _Optional[int] = ..., samples: _Optional[int] = ..., updates: _Optional[int] = ...) -> None: ...

class Waiting(_message.Message):
    __slots__ = ("node",)
    NODE_FIELD_NUMBER: _ClassVar[int]
    node: str
    def __init__(self, node: _Optional[str] = ...) -> None: ...

class Left(_message.Message):
    __slots__ = ("node", "parameters", "version", "samples")
    NODE_FIELD_NUMBER: _ClassVar[int]
    PARAMETERS_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    SAMPLES_FIELD_NUMBER: _ClassVar[int]
    node: str
    parameters: bytes
    version: int
    samples: int
    def __init__(self, node: _Optional[str] = ..., parameters: _Optional[bytes] = ..., version: _Optional[int] = ..., samples: _Optional[int] = ...) -> None: ...

class Goodbye(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...
