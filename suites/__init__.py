"""The contract: one test per clause. Docstrings are the sentences on the certificate; the profile owns the limits."""
