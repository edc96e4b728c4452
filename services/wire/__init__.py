"""Messages on the wire: code generated from `proto/services/wire`, and the codec of the bulk path."""
