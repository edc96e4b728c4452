"""States of data streams that outlive a connection: numbered messages, copies for resending, and received counts."""
