"""How do vectors look on the wire?

identity    as they are
fp16        half precision

`AnyCompressor` is the registry: a member of this union can stand in a scenario under its `kind`.
"""

from typing import Annotated, TypeAlias

from pydantic import Field

from services.compressors.base import Compressor, Payload, State, from_wire, to_wire
from services.compressors.fp16 import Fp16
from services.compressors.identity import Identity

AnyCompressor: TypeAlias = Annotated[Identity | Fp16, Field(discriminator="kind")]

__all__ = ["AnyCompressor", "Compressor", "Fp16", "Identity", "Payload", "State", "from_wire", "to_wire"]
