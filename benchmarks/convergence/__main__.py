"""Entry point of `make bench-convergence`."""

import sys

from benchmarks.convergence.bench import main

if __name__ == "__main__":
    sys.exit(main())
