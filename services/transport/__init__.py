"""The seam to the network (`base`) and what fulfils it: `grpc` and `tcp` between processes, `virtual` within one."""
