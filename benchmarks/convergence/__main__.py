"""Entry point of `make bench-convergence`."""

import os
import sys

from benchmarks.convergence.bench import main
from compose.engines.local import NODE_ENVIRONMENT

if __name__ == "__main__":
    if not os.environ.items() >= NODE_ENVIRONMENT.items():
        # As in nodes: one BLAS thread, so that sums have the same bits. Libraries read this when the process starts.
        command = [sys.executable, "-m", "benchmarks.convergence", *sys.argv[1:]]
        os.execve(sys.executable, command, os.environ | NODE_ENVIRONMENT)  # noqa: S606 - this program
    sys.exit(main())
