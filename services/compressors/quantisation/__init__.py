"""Few levels per entry, with a scale for many entries: `int8`, `qsgd`, `terngrad`, `one_bit`, `sign`."""
