"""Which accelerator is meant? Submitters write the same model in many ways, and groups need one."""

import re

MODEL = re.compile(r"\b(GB300|GB200|B300|B200|H200|H100|GH200|A100|A30|L40S|V100|MI\d{3}[AX])\b")
FORMS = (  # the first that is found; the driver calls an H100 on SXM "H100 80GB HBM3"
    (re.compile("NVL"), "NVL"),
    (re.compile("PCIe", re.IGNORECASE), "PCIe"),
    (re.compile(r"SXM|\bH[12]00\b.*HBM"), "SXM"),
)
FILLERS = re.compile(
    r"\b(NVIDIA|AMD|Intel|GeForce|Radeon|Instinct|Accelerators?|GPUs?|Tensor Core)\b|\(R\)|®", re.IGNORECASE
)


def family(accelerator: str) -> str:
    """Model and form, as "H100 SXM": without maker, memory and clock. What is not known keeps its own words.

    Systems of one family are alike enough to be each other's reference: the same chip on the same kind of board.
    """
    if model := MODEL.search(accelerator):
        form = next((name for pattern, name in FORMS if pattern.search(accelerator)), "")
        return f"{model[1]} {form}".strip()
    if tpu := re.search(r"\bTPU[- ]?(\w+)", accelerator, re.IGNORECASE):
        return f"TPU {tpu[1].lower()}"
    return " ".join(FILLERS.sub(" ", accelerator).split()) or accelerator
