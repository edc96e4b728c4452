from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Part(_message.Message):
    __slots__ = ("header", "pad", "data")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    PAD_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    header: Header
    pad: bytes
    data: bytes
    def __init__(self, header: _Optional[_Union[Header, _Mapping]] = ..., pad: _Optional[bytes] = ..., data: _Optional[bytes] = ...) -> None: ...

class Header(_message.Message):
    __slots__ = ("step", "stage", "chunk", "piece", "version", "samples", "sent_at", "passed_at", "update_s", "underway", "waited_s", "alone")
    STEP_FIELD_NUMBER: _ClassVar[int]
    STAGE_FIELD_NUMBER: _ClassVar[int]
    CHUNK_FIELD_NUMBER: _ClassVar[int]
    PIECE_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    SAMPLES_FIELD_NUMBER: _ClassVar[int]
    SENT_AT_FIELD_NUMBER: _ClassVar[int]
    PASSED_AT_FIELD_NUMBER: _ClassVar[int]
    UPDATE_S_FIELD_NUMBER: _ClassVar[int]
    UNDERWAY_FIELD_NUMBER: _ClassVar[int]
    WAITED_S_FIELD_NUMBER: _ClassVar[int]
    ALONE_FIELD_NUMBER: _ClassVar[int]
    step: int
    stage: int
    chunk: int
    piece: int
    version: int
    samples: int
    sent_at: float
    passed_at: float
    update_s: float
    underway: int
    waited_s: float
    alone: bool
    def __init__(self, step: _Optional[int] = ..., stage: _Optional[int] = ..., chunk: _Optional[int] = ..., piece: _Optional[int] = ..., version: _Optional[int] = ..., samples: _Optional[int] = ..., sent_at: _Optional[float] = ..., passed_at: _Optional[float] = ..., update_s: _Optional[float] = ..., underway: _Optional[int] = ..., waited_s: _Optional[float] = ..., alone: _Optional[bool] = ...) -> None: ...

class Identity(_message.Message):
    __slots__ = ("certificate", "issued_at", "signature")
    CERTIFICATE_FIELD_NUMBER: _ClassVar[int]
    ISSUED_AT_FIELD_NUMBER: _ClassVar[int]
    SIGNATURE_FIELD_NUMBER: _ClassVar[int]
    certificate: bytes
    issued_at: float
    signature: bytes
    def __init__(self, certificate: _Optional[bytes] = ..., issued_at: _Optional[float] = ..., signature: _Optional[bytes] = ...) -> None: ...

class Delivered(_message.Message):
    __slots__ = ("parts",)
    PARTS_FIELD_NUMBER: _ClassVar[int]
    parts: int
    def __init__(self, parts: _Optional[int] = ...) -> None: ...
