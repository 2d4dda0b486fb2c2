"""`python -m pytest_gpuready.inventory SITEFILE`: what is wrong with a site file, or one line that it loads.

The profile that it names is loaded and held against it; no node is asked.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from pytest_gpuready.errors import InventoryError, ProfileError
from pytest_gpuready.inventory import Site, choose_profile, load_site
from pytest_gpuready.inventory.nodeset import fold
from pytest_gpuready.model import Profile


def main(arguments: list[str] | None = None) -> int:
    """0 where the site file loads and does not contradict its profile, 1 where it does."""
    parser = argparse.ArgumentParser(prog="python -m pytest_gpuready.inventory", description="Check a site file.")
    parser.add_argument("site", metavar="SITEFILE", type=Path)
    try:
        site = load_site(parser.parse_args(arguments).site)
        profile = choose_profile(site, None, {})
    except (InventoryError, ProfileError) as wrong:
        sys.stdout.write(f"{wrong}\n")
        return 1
    sys.stdout.write(f"{_said(site, profile)}\n")
    return 0


def _said(site: Site, profile: Profile | None) -> str:
    counts = dict.fromkeys(node.count for node in site.nodes)
    alike = {count: [node.name for node in site.nodes if node.count == count] for count in counts}
    nodes = [f"{fold(names)} (GPUs: {count or 'as found'})" for count, names in alike.items()]
    said = [
        ", ".join(nodes) or "no node declared",
        *([f"reached by {site.transport}"] if site.transport else []),
        f"profile {profile.name} {profile.version}" if profile else "the profile follows from the GPUs found",
        f"level {site.level}" if site.level else "the highest level of the profile",
        f"clauses excluded: {len(site.exclude)}",
        f"sha256 {site.sha256}",
    ]
    return f"{site.name} loads: {'; '.join(said)}"


if __name__ == "__main__":
    sys.exit(main())
