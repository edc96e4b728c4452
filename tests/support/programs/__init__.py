"""Programs that tests run on this host: notebook kernels, trace processors, packages for pip, and child processes."""
