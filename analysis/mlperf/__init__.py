"""Study of the public results of MLPerf Training.

The package also has rules for checking Ensayo's logs with MLCommons' checker.

reading/       result tables, published result folders, scores, compliance, names of accelerators, samples of a run
rule_sets/     compliance rules of each round, and the choice of the rules for a folder of logs
references     speedup and efficiency of each system against a reference system of the workload or of its family
clusters       k-means of the systems, with silhouette and stability
series         one workload on one kind of accelerator in several sizes; `forecasts` fits scaling laws to such series
study          input of all chapters; `chapters/` and `figures/` have one file each; `report` writes the page and files
rules/         rules for MLCommons' checker, for Ensayo's own logs

Ensayo's logs are MLPerf-style. Neither these logs nor numbers derived here are MLPerf results.

The rule sets of MLCommons' compliance checker accept only MLPerf's benchmarks. Ensayo therefore ships its own rule
file, with keys of the common rules of MLPerf Training 6.1.0. The checker, which is part of the package
`mlperf-logging`, needs the absolute path of the rule file:

    python -m mlperf_logging.compliance_checker --config <CHECKER_RULES_PATH> result.txt
"""

from pathlib import Path

CHECKER_RULES_PATH = Path(__file__).resolve().parent / "rules" / "common.yaml"
