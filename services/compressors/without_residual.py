"""Registry of the compressors that keep no residual, so that error feedback may wrap them."""

from typing import Annotated, TypeAlias

from pydantic import Field

from services.compressors.bf16 import Bf16
from services.compressors.fp4 import Fp4
from services.compressors.fp16 import Fp16
from services.compressors.identity import IdentityCompressor
from services.compressors.int8 import Int8
from services.compressors.one_bit import OneBit
from services.compressors.qsgd import Qsgd
from services.compressors.random_k import RandomK
from services.compressors.sign import Sign
from services.compressors.terngrad import TernGrad
from services.compressors.top_k import TopK

CompressorWithoutResidual: TypeAlias = (
    IdentityCompressor | Fp16 | Bf16 | Fp4 | Int8 | Qsgd | TernGrad | OneBit | Sign | TopK | RandomK
)
AnyCompressorWithoutResidual: TypeAlias = Annotated[CompressorWithoutResidual, Field(discriminator="kind")]
