"""How fast are vectors summed, and by whom? `make bench-transport` compares our data planes, gloo and the bound.

`spaces` are the links, `ranks` the processes behind them: `rank` is a program over our planes, `gloo` one over its own.
"""
