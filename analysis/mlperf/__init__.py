"""Study of MLPerf Training's public results, and rules by which MLCommons' compliance checker judges Ensayo's logs.

reading/       result tables, published result folders, scores, compliance, names of accelerators, samples of a run
references     speedup and efficiency of each system against a reference system
clusters       k-means of the systems, with silhouette and stability
series         one workload on one kind of accelerator in several sizes; `forecasts` fits scaling laws to such series
study          input of all chapters; `chapters/` and `figures/` have one file each; `report` writes the page and files
rules/         rules for MLCommons' checker

Ensayo's logs are MLPerf-style. Neither these logs nor numbers derived here are MLPerf results.

The checker's own rule sets accept only MLPerf's benchmarks, so Ensayo ships a rule file of its own, with keys of the
common rules of MLPerf Training 6.1.0. The package `mlperf-logging` runs that file and cannot replace it. The checker
takes its absolute path:

    python -m mlperf_logging.compliance_checker --config <CHECKER_RULES_PATH> result.txt
"""

from pathlib import Path

CHECKER_RULES_PATH = Path(__file__).resolve().parent / "rules" / "common.yaml"
