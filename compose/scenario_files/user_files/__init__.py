"""References to the user's files in a scenario document, which are resolved to absolute paths and digests."""
