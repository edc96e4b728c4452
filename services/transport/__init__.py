"""The seam to the network (`base`) and what fulfils it: `grpc` between processes, `virtual` within one."""
