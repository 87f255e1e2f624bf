"""What the host remembers: store protocols, their records, and SQL implementations of them."""
