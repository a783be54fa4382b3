"""Several machines as one server: routing by predicted time to first token, and failover that changes no byte."""
