"""Row of the fidelity benchmark that measures paced devices: workers that only compute, in containers."""
