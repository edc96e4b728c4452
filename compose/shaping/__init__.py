"""Pure functions that compute the commands with which the kernel shapes links.

Other pure functions parse the kernel's output.

- `link_state`: properties of a node's link at a moment, events included
- `node_link`, `shared_link`: scripts for the link of a node and for links that many nodes share
- `htb_tree`, `filters`, `delays`: parts of these scripts
- `bursts`: burst and packet sizes
- `mechanisms`: choice of the kernel mechanism that enforces each property
- `tc_output`: parser of the output of `tc`
- `probes`, `rate_probes`, `link_rates`: packets that test the shaped links before a run

Helper containers run the scripts inside the network namespace of a node. Egress is shaped at the node's interface.
Ingress is redirected to an ifb device and shaped there, so that many senders to one receiver share its downlink, as
they would share the port of a network switch. Links that several nodes share are shaped in the network namespace of a
separate container, the network switch, which forwards their traffic.
"""
