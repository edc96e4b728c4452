"""Layers for sequences of shape (B, T, D): B samples, T positions, D features of each.

embedding        vectors of tokens and of positions
normalisation    layer normalisation and root mean square normalisation
rotary           rotation of queries and keys by their position
attention        attention of each position to the others
gated            gated feed-forward layer
adapters         low-rank adapters of frozen weights
"""
