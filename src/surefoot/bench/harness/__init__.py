"""What every benchmark shares: interleaved timing, figures, tables, the machine's limits, and load to measure under."""
