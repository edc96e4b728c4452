"""Code that runs inside a node, and the records that describe a trial.

scenario, plan                          what the user declares; every decision derived from it before a trial starts
cluster                                 the emulated machines, links and events
strategies, collectives, compressors    how workers exchange gradients and agree on an update
parameter_server                        synchronisation policies, staleness weights, update rules, placement of shards
learning                                models, datasets, optimisers, data order
coordinator, worker, ps_shard, shaper   the node roles
commands                                training commands of users: how a node runs, measures and paces one
transport, wire                         messages between nodes: gRPC, TCP, virtual network; generated protobuf code
runtime                                 clocks, pacing, compute device, run log
node                                    a node as a process; all nodes of a trial in one process and virtual time
schema                                  units, records, conflicts, errors

Nodes read the plan, never the scenario.
"""
