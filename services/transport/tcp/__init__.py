"""Bulk messages over bare TCP behind the same seam: `data` is the plane, `lines` go out, `inlets` come in.

A stream is: a line of length and proof of identity, the answer of the receiver, then messages as in data.proto, each a
prefix of fixed length and its payload; behind the last one the receiver says how many it took.
"""
