"""Commands that make links what a plan says, and the reading of what the kernel made of them; pure functions.

`state` says what a node's link is at a moment, events included; `node` and `switch` turn it into scripts, which helpers
run inside a network namespace; `tree`, `filters` and `firewall` are the parts of a script; `credit` chooses bursts;
`rungs` decides which mechanism of this kernel serves which property; `reading` understands what `tc` prints.

Egress is shaped at a node's interface. Ingress is redirected to an ifb device and shaped there, so that many senders to
one receiver share its downlink, as they would share the port of a switch. What several nodes share is shaped in the
network namespace of a container of its own, the switch, which forwards what passes it.
"""
