"""What runs in a helper container, which shares a node's network namespace and holds NET_ADMIN; the node holds nothing.

`python -m services.shaper` does what its standard input says, line by line (`__main__`). `delay_line` is a process of
its own where the kernel can't delay packets; `nfqueue` is how it talks to the kernel; `probe` measures. Standard
library only, unless a jitter or a loss is declared: a helper per node has to start in little time.
"""
