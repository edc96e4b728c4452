"""Registry of the compressors that keep no residual, so that error feedback may wrap them."""

from typing import Annotated, TypeAlias

from pydantic import Field

from services.compressors.floating_point.bf16 import Bf16
from services.compressors.floating_point.fp4 import Fp4
from services.compressors.floating_point.fp16 import Fp16
from services.compressors.identity import IdentityCompressor
from services.compressors.quantisation.int8 import Int8
from services.compressors.quantisation.one_bit import OneBit
from services.compressors.quantisation.qsgd import Qsgd
from services.compressors.quantisation.sign import Sign
from services.compressors.quantisation.terngrad import TernGrad
from services.compressors.sparsification.random_k import RandomK
from services.compressors.sparsification.top_k import TopK

CompressorWithoutResidual: TypeAlias = (
    IdentityCompressor | Fp16 | Bf16 | Fp4 | Int8 | Qsgd | TernGrad | OneBit | Sign | TopK | RandomK
)
AnyCompressorWithoutResidual: TypeAlias = Annotated[CompressorWithoutResidual, Field(discriminator="kind")]
