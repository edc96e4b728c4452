"""Start of the metering, when Python starts. Python imports this module because its folder is on the PYTHONPATH."""

import importlib
import os
import sys
from importlib.machinery import PathFinder
from importlib.util import module_from_spec
from pathlib import Path

OWN_FOLDER = Path(__file__).resolve().parent


def run_shadowed_sitecustomize() -> None:
    """Execute the environment's own `sitecustomize`, which Python would have imported without this one."""
    spec = PathFinder.find_spec("sitecustomize", [path for path in sys.path if Path(path).resolve() != OWN_FOLDER])
    if spec is None or spec.loader is None:
        return
    module = module_from_spec(spec)
    sys.modules["sitecustomize"] = module
    spec.loader.exec_module(module)


def start_metering() -> None:
    """Install the metering, if the environment asks for it. An error is printed and does not stop the process."""
    try:
        importlib.import_module("ensayo_meter.activation").activate()
    except Exception as error:  # noqa: BLE001 - no error of the metering may stop the user's script
        sys.stderr.write(f"ensayo: this process is not metered: {type(error).__name__}: {error}\n")


try:
    run_shadowed_sitecustomize()
finally:
    if os.environ.get("ENSAYO_METER"):
        start_metering()
