"""Entry point of `make bench-real-cluster`."""

import sys

from benchmarks.real_cluster.bench import main

if __name__ == "__main__":
    sys.exit(main())
