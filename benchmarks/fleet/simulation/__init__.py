"""A fleet in simulated time: the real router and the real schedulers, with as many machines and users as one likes."""
