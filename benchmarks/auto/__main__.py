"""Entry point of `make bench-auto`."""

import os
import sys

from benchmarks.auto.bench import main
from compose.engines.local import NODE_ENVIRONMENT

if __name__ == "__main__":
    if not os.environ.items() >= NODE_ENVIRONMENT.items():
        # As in nodes: one BLAS thread. Libraries read this when the process starts.
        command = [sys.executable, "-m", "benchmarks.auto", *sys.argv[1:]]
        os.execve(sys.executable, command, os.environ | NODE_ENVIRONMENT)  # noqa: S606 - this program
    sys.exit(main())
