"""Entry point of `make bench-diloco-bandwidth`."""

import sys

from benchmarks.diloco_bandwidth.bench import main

if __name__ == "__main__":
    sys.exit(main())
