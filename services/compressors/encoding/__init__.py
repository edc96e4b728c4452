"""Steps that compressors share: blocks and buckets of a vector, packed bits, rounding, selection of entries."""
