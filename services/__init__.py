"""What runs in a node, and what describes it.

scenario, plan                         what was asked for; what was decided. After the plan nobody decides anything
worker, ps_shard, coordinator          the three roles: a loop or desk that acts, a machine that decides
strategies, collectives, compressors, optimisers, models, datasets    the plug-ins
synchronisers, staleness, compensation, placement    those of parameter servers; `replay` computes their runs again
switch_rules                           those of strategies that give way to another one
transport, clock, device, control      the seams: network, time, arrays, the line to the coordinator
service, simulate                      a node as a process; all nodes in one process and virtual time
"""
