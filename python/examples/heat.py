"""Prints where a recorded program walks page tables most: python heat.py cache.hugepilot."""

import argparse

import hugepilot
import numpy as np


def main() -> None:
    arguments = argparse.ArgumentParser(description="Where a recorded program walks page tables most.")
    arguments.add_argument("recording", help="a file that `hugepilot record -o FILE PID` wrote")
    recording = hugepilot.Recording(arguments.parse_args().recording)

    heat = recording.heat()
    print(f"{recording.name} (process {recording.pid}): heat.shape = {heat.shape}, observations and regions of 2 MiB")

    # The mean of each region over the observations that could see it, then the sum of each mapping.
    seen = ~np.isnan(heat)
    walks = np.nansum(heat, axis=0) / np.maximum(seen.sum(axis=0), 1)
    held = recording.mapping_index >= 0
    index, count = recording.mapping_index[held], len(recording.mappings)
    walks_of_mapping = np.bincount(index, weights=walks[held], minlength=count)
    present_of_mapping = np.bincount(index, weights=recording.present_bytes()[-1][held], minlength=count)

    print(f"{'walks/s':>12} {'MiB':>9}  mapping")
    for number in np.argsort(-walks_of_mapping)[:10]:
        mapping = recording.mappings[number]
        name = mapping.name or "anonymous"
        print(f"{walks_of_mapping[number]:12,.0f} {present_of_mapping[number] / 2**20:9.1f}  {mapping.start:#x} {name}")


if __name__ == "__main__":
    main()
