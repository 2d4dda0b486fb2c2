"""Acceptance test for GPU nodes, as a pytest plug-in: a profile, measurements, verdicts and a certificate."""

__version__ = "0.1.0"
