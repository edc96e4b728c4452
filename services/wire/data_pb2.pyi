from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class DataMessage(_message.Message):
    __slots__ = ("header", "padding", "payload", "declared_padding")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    PADDING_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    DECLARED_PADDING_FIELD_NUMBER: _ClassVar[int]
    header: DataHeader
    padding: bytes
    payload: bytes
    declared_padding: bytes
    def __init__(self, header: _Optional[_Union[DataHeader, _Mapping]] = ..., padding: _Optional[bytes] = ..., payload: _Optional[bytes] = ..., declared_padding: _Optional[bytes] = ...) -> None: ...

class DataHeader(_message.Message):
    __slots__ = ("step", "kind", "chunk", "piece", "version", "samples", "link_start_s", "link_end_s", "update_s", "pending_samples", "waited_s", "skips_wait")
    STEP_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    CHUNK_FIELD_NUMBER: _ClassVar[int]
    PIECE_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    SAMPLES_FIELD_NUMBER: _ClassVar[int]
    LINK_START_S_FIELD_NUMBER: _ClassVar[int]
    LINK_END_S_FIELD_NUMBER: _ClassVar[int]
    UPDATE_S_FIELD_NUMBER: _ClassVar[int]
    PENDING_SAMPLES_FIELD_NUMBER: _ClassVar[int]
    WAITED_S_FIELD_NUMBER: _ClassVar[int]
    SKIPS_WAIT_FIELD_NUMBER: _ClassVar[int]
    step: int
    kind: int
    chunk: int
    piece: int
    version: int
    samples: int
    link_start_s: float
    link_end_s: float
    update_s: float
    pending_samples: int
    waited_s: float
    skips_wait: bool
    def __init__(self, step: _Optional[int] = ..., kind: _Optional[int] = ..., chunk: _Optional[int] = ..., piece: _Optional[int] = ..., version: _Optional[int] = ..., samples: _Optional[int] = ..., link_start_s: _Optional[float] = ..., link_end_s: _Optional[float] = ..., update_s: _Optional[float] = ..., pending_samples: _Optional[int] = ..., waited_s: _Optional[float] = ..., skips_wait: _Optional[bool] = ...) -> None: ...

class IdentityProof(_message.Message):
    __slots__ = ("certificate", "issued_at", "signature", "nonce", "public_key")
    CERTIFICATE_FIELD_NUMBER: _ClassVar[int]
    ISSUED_AT_FIELD_NUMBER: _ClassVar[int]
    SIGNATURE_FIELD_NUMBER: _ClassVar[int]
    NONCE_FIELD_NUMBER: _ClassVar[int]
    PUBLIC_KEY_FIELD_NUMBER: _ClassVar[int]
    certificate: bytes
    issued_at: float
    signature: bytes
    nonce: bytes
    public_key: bytes
    def __init__(self, certificate: _Optional[bytes] = ..., issued_at: _Optional[float] = ..., signature: _Optional[bytes] = ..., nonce: _Optional[bytes] = ..., public_key: _Optional[bytes] = ...) -> None: ...

class KeyReply(_message.Message):
    __slots__ = ("certificate", "public_key", "signature")
    CERTIFICATE_FIELD_NUMBER: _ClassVar[int]
    PUBLIC_KEY_FIELD_NUMBER: _ClassVar[int]
    SIGNATURE_FIELD_NUMBER: _ClassVar[int]
    certificate: bytes
    public_key: bytes
    signature: bytes
    def __init__(self, certificate: _Optional[bytes] = ..., public_key: _Optional[bytes] = ..., signature: _Optional[bytes] = ...) -> None: ...

class StreamReceipt(_message.Message):
    __slots__ = ("messages",)
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    messages: int
    def __init__(self, messages: _Optional[int] = ...) -> None: ...
