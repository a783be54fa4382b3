"""What operators see: figures from the metrics, requests that run and wait, shares of users, slow requests and why."""
