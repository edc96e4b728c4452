"""Entry point of `make bench-fidelity`."""

import sys

from benchmarks.fidelity.bench import main

if __name__ == "__main__":
    sys.exit(main())
