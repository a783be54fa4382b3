"""A prompt cut into chunks."""

from hypothesis import strategies as st

LENGTH, WIDTH = 23, 5


CUTS = st.sets(st.integers(1, LENGTH - 1)).map(lambda cuts: [0, *sorted(cuts), LENGTH])
