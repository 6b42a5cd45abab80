"""Recordings as `hugepilot record` writes them, made by hand."""

import gzip
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple, Optional

REGION = 2 << 20
COST = ["clear", "longest_stall", "read", "interim_read", "reads", "inspect", "kernel", "program"]


class Region(NamedTuple):
    """What an observation saw of a region; `number` is its address in regions, `mapping` an index."""

    number: int
    mapping: Optional[int]
    walks: float
    present: int = 512
    huge: bool = False
    unobserved: int = 0


class Mapping(NamedTuple):
    """A mapping, its addresses in regions."""

    start: int
    end: int
    name: str


def observation(
    seconds: float, regions: list[Region], mappings: Optional[list[Mapping]] = None, meaning: str = "walked"
) -> dict[str, Any]:
    """A line of a recording. Without mappings they are those of the line before."""
    starts = [region.number for region in regions]
    return {
        "at_ns": int(seconds * 1e9),
        "pid": 4242,
        "tracker": "page-walk",
        "meaning": meaning,
        "window_ns": 100_000_000,
        "busy_cpus": None,
        "rss_bytes": sum(region.present for region in regions) * 4096,
        "page_tables_bytes": 4096,
        "cost": dict.fromkeys(COST, 0),
        "mappings": None if mappings is None else [mapping_of(mapping) for mapping in mappings],
        "regions": {
            "start": [start - before for start, before in zip(starts, [0, *starts])],
            "mapping": [region.mapping for region in regions],
            "obstacle": [None] * len(regions),
            "huge": [int(region.huge) for region in regions],
            "present": [region.present for region in regions],
            "walked": [0] * len(regions),
            "walked_in_window": [0] * len(regions),
            "unobserved": [region.unobserved for region in regions],
            "walks_per_second": [region.walks for region in regions],
            "growth": [],
        },
    }


def mapping_of(mapping: Mapping) -> dict[str, Any]:
    range_of_it = {"start": mapping.start * REGION, "end": mapping.end * REGION}
    return {"range": range_of_it, "name": mapping.name, "obstacle": None, "shared": None, "asked_for": False}


def write(path: Path, observations: Iterable[dict[str, Any]], version: int = 2) -> Path:
    """Writes a recording of a program called `cache`."""
    with gzip.open(path, "wt", compresslevel=1) as file:
        for line in [{"hugepilot_recording": version, "name": "cache"}, *observations]:
            file.write(json.dumps(line) + "\n")
    return path
