"""Messages between nodes: code generated from `proto/services/wire`."""
