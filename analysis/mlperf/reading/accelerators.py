"""Kinds of accelerators and names of software stacks.

A kind is one model of accelerator in one form factor. A software stack is a set of frameworks. Submitters spell both
in many ways.
"""

import re

MODEL_PATTERN = re.compile(r"\b(GB300|GB200|B300|B200|H200|H100|GH200|A100|A30|L40S|V100|MI\d{3}[AX])\b")
FORM_PATTERNS = (  # the first match counts; the driver calls an H100 on SXM "H100 80GB HBM3"
    (re.compile("NVL"), "NVL"),
    (re.compile("PCIe", re.IGNORECASE), "PCIe"),
    (re.compile(r"SXM|\bH[12]00\b.*HBM"), "SXM"),
)
FRAMEWORK_PATTERN = re.compile(
    r"(?i)pytorch|nemo|mxnet|hugectr|dgl|tensorflow|\bjax\b|maxtext|maxdiffusion|paddle|tinygrad|mindspore|popart|optimum|"
    r"megatron|torchtitan|\bmerlin\b"
)
FILLER_WORDS = re.compile(r"(?i)\b(NVIDIA|AMD|Intel|GeForce|Radeon|Instinct|Accelerators?|GPUs?|Tensor Core)\b|\(R\)|®")


def accelerator_kind(accelerator_name: str) -> str:
    """Return the kind of an accelerator, such as "H100 SXM".

    A kind is a model and a form factor, without maker, memory and clock. An unknown model keeps the submitter's words.
    Systems of one kind can be compared with each other: they have the same chip on the same type of board.
    """
    if model := MODEL_PATTERN.search(accelerator_name):
        form = next((name for pattern, name in FORM_PATTERNS if pattern.search(accelerator_name)), "")
        return f"{model[1]} {form}".strip()
    if tpu := re.search(r"\bTPU[- ]?(\w+)", accelerator_name, re.IGNORECASE):
        return f"TPU {tpu[1].lower()}"
    return " ".join(FILLER_WORDS.sub(" ", accelerator_name).split()) or accelerator_name


def software_stack(framework_text: str) -> str:
    """Return the frameworks that a submitter names, without maker and version, for example "nemo + pytorch".

    A text without a known framework is returned in lower case and without numbers.
    """
    found = {each.lower() for each in FRAMEWORK_PATTERN.findall(framework_text)}
    return " + ".join(sorted(found)) or " ".join(re.sub(r"[\d.]+", " ", framework_text.lower()).split())
