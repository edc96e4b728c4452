"""What a large report costs is measured of all processes that make it."""

import subprocess
import sys

from benchmarks.report import PeakMemoryMonitor

HELD = 200_000_000
CHILD = f"import time; held = b'x' * {HELD}; time.sleep(0.5)"


def test_memory_is_counted_of_processes_together() -> None:
    """One half of a report's trials is in another process than the other half."""
    with PeakMemoryMonitor() as alone:
        pass
    with PeakMemoryMonitor() as together:
        subprocess.run([sys.executable, "-c", CHILD], check=True)

    assert alone.peak_bytes > 10_000_000
    assert together.peak_bytes > alone.peak_bytes + HELD
