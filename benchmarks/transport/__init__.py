"""How fast are vectors summed and sent, and by whom? `make bench-transport` compares our data planes with others.

`cases` are what is measured and must hold, `spaces` the links, `ranks` the processes behind them, `jobs` how they are
spoken to: `rank` is a program over our planes; `gloo`, `raw` and `textbook` are the rivals.
"""
