"""Reads what others already hold and says what it proves and what it does not: no GPU, no network, nothing executed."""
