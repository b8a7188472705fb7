"""Every table and figure of the CC-FedAvg paper: what to run, how to draw it, and what the paper says."""
