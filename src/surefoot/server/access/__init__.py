"""Who may use the server, and how much of it: keys, rates, shares, sizes and times, and the logs of it."""
