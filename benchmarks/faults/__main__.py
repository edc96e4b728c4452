"""Entry point of `make bench-faults`."""

import sys

from benchmarks.faults.bench import main

if __name__ == "__main__":
    sys.exit(main())
