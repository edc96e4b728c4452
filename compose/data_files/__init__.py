"""Data files of the user: checks, and conversion to arrays that nodes memory-map.

When a scenario is loaded, `compose/scenario_files/user_files/` adds the digests of the files to it. Then `preparation`
reads and checks the files and writes arrays to a folder in the cache of the user, once for each content and set of
keys. `readers/` has one module per file format.
"""
