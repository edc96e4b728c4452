"""Rule sets of MLPerf Training's closed division, one for each round.

values     rules for the value of a log line
common     rules for the keys that every workload logs
images  texts  other   rules for the keys of each workload
rounds     the rule set of each round, and the choice of a rule set for a folder of logs

The facts are those of mlcommons/logging (`mlperf_logging.compliance_checker`, `training_<round>.0`).
`analysis.mlperf.reading.compliance` applies the rules to a log.
"""
