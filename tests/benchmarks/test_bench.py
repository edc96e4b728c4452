"""Peak memory of a report is measured over all processes that write it."""

import subprocess
import sys

from benchmarks.report import PeakMemoryMonitor

CHILD_BYTES = 200_000_000
CHILD = f"import time; held = b'x' * {CHILD_BYTES}; time.sleep(0.5)"


def test_peak_memory_is_summed_over_all_processes() -> None:
    """Half of a report's trials are read by another process."""
    with PeakMemoryMonitor() as alone:
        pass
    with PeakMemoryMonitor() as together:
        subprocess.run([sys.executable, "-c", CHILD], check=True)

    assert alone.peak_bytes > 10_000_000
    assert together.peak_bytes > alone.peak_bytes + CHILD_BYTES
