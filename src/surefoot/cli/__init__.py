"""The command line: reads options, calls the layer that knows, prints. No logic of its own."""
