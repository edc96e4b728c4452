"""A script that needs arguments."""

import sys

if len(sys.argv) < 100:
    sys.exit("usage: raises_at_import.py FILE")
