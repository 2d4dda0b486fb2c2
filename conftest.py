"""pytest's own fixture for running pytest in pytest; our plug-in comes by its entry point."""

pytest_plugins = ["pytester"]
