"""Measures a fleet: what a gateway adds, whether answers survive, and how well the router chooses."""
