"""The oracle: every operation of `surefoot.ops` in plain numpy, written for reading. Native variants must equal it bit
for bit."""
