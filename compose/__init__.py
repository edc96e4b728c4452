"""Loading of a scenario file, and starting and supervising the nodes of its trials.

scenario_files    reads a scenario file into a Scenario, or reports every mistake with its line
host              facts about this host, and the check whether it is fast enough for a scenario
commands          training commands of users on the host: files, interpreter, dry run
calibration       measures what messages cost on this host and which link rates it carries
runs              runs the trials of a scenario one after the other and fills a run folder
engines           start nodes as containers, as processes or as coroutines
shaping           scripts that shape the links of containers, as pure functions
"""
