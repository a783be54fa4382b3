"""Sizing: what a model will do on a machine, known from its header before it is fetched or the machine is bought."""
