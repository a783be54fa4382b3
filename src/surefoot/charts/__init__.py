"""Line charts as SVG text: for lessons, for pages of comparisons, and for benchmarks. Standard library only."""
