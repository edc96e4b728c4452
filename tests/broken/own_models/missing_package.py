"""A file that needs a package which is not installed."""

import package_that_is_missing


class MyModel(package_that_is_missing.Model):
    """Never defined."""
