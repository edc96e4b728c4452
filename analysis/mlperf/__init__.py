"""MLCommons' compliance checker on our logs: MLPerf-style; not an MLPerf result.

The stock rules know only MLPerf's own benchmarks, so `RULES` is our own file; the checker takes it by absolute path:

    python -m mlperf_logging.compliance_checker --config <RULES> result.txt
"""

from pathlib import Path

RULES = Path(__file__).resolve().parent / "rules" / "common.yaml"
