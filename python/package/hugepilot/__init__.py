"""hugepilot for Python: recordings as NumPy arrays, and arrays on huge pages.

Example::

    recording = hugepilot.Recording("cache.hugepilot")
    heat = recording.heat()  # page walks a second, [time, region]

    arena = hugepilot.Arena(1 << 30)
    table = arena.empty((1_000_000, 16))
"""

from hugepilot._native import Arena, Mapping, Recording, RecordingError, Statistics, Tracking, __version__

__all__ = ["Arena", "Mapping", "Recording", "RecordingError", "Statistics", "Tracking", "__version__"]
