"""Two models under load on the same cores: the front's sharing beside fixed splits."""
