"""Public results of MLPerf Training, studied; and MLCommons' compliance checker on our own logs.

results        the table of results, read from a CSV; `folders` reads what MLCommons publishes, `scoring` scores it
accelerators   one name for each kind of accelerator
references     speedup and efficiency against one of the systems
clusters       k-means, with its silhouette and its stability
study          what chapters are given; `chapters/` and `figures/`, one per file; `report` writes page and files

Our logs are MLPerf-style; what they tell is not an MLPerf result, nor is anything that is derived here. The stock rules
know only MLPerf's own benchmarks, so `RULES` is our own file; the checker takes it by absolute path:

    python -m mlperf_logging.compliance_checker --config <RULES> result.txt
"""

from pathlib import Path

RULES = Path(__file__).resolve().parent / "rules" / "common.yaml"
