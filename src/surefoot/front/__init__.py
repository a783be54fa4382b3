"""Several models behind one address: one process holds keys and limits, and starts a process for each model."""
