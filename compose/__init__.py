"""From a scenario file to nodes that run.

load, document, explain, override, problem, schema    a file becomes a Scenario, or says what is wrong with it
run, supervise, authority                             a Scenario becomes a run folder, trial after trial
engines                                               what nodes are: containers, processes, coroutines
render, shaping                                       what containers and their links need, as pure functions
"""
