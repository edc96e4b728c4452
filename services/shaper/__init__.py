"""Program of the helper container that shapes the network links of a node.

Only the helper has the capability NET_ADMIN. The helper shares the network namespace of the node. `python -m
services.shaper` runs the requests on its standard input, one per line. `delay_line` is a separate process for hosts
whose kernel can't delay packets; `nfqueue` encodes its messages to the kernel. `probe` measures links. Only the
standard library is used, unless jitter or loss is declared: a helper per node has to start fast.
"""
