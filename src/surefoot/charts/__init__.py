"""Line charts as SVG text, for lessons, comparisons and benchmarks. Standard library only."""
