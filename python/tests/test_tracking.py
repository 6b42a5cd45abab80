import errno
import mmap
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hugepilot
import numpy as np
import pytest
from numpy.typing import NDArray

MIB = 1 << 20
NO_DAEMON = "/nonexistent/hugepilot.sock"
NOT_SUPPORTED = (errno.ENOSYS, errno.EPERM, errno.EINVAL)


def on_base_pages(nbytes: int) -> "NDArray[np.uint8]":
    """An array that begins on base pages even where huge pages are the default."""
    memory = mmap.mmap(-1, nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    memory.madvise(mmap.MADV_NOHUGEPAGE)
    array = np.frombuffer(memory, np.uint8)
    array[:] = 1
    memory.madvise(mmap.MADV_HUGEPAGE)
    return array


def write_until(array: "NDArray[np.uint8]", reached: Callable[[], bool]) -> None:
    """Writes all of an array, again and again. The limit only ends a test that would go on for ever."""
    end = time.monotonic() + 120
    while not reached():
        assert time.monotonic() < end
        array += 1


def own_writes(array: "NDArray[np.uint8]", **options: Any) -> hugepilot.Tracking:
    """A tracking without a daemon. Skips where this kernel has none."""
    try:
        return hugepilot.Tracking([array], interval=0.1, own_writes=True, socket=NO_DAEMON, **options)
    except OSError as error:
        if error.errno not in NOT_SUPPORTED:
            raise
        pytest.skip(f"this kernel cannot do it: {error}")


def test_what_is_written_is_put_on_huge_pages() -> None:
    array = on_base_pages(16 * MIB)
    with own_writes(array, max_growth_bytes=4 * MIB) as tracking:
        write_until(array, lambda: tracking.statistics().converted > 0)
    statistics = tracking.statistics()
    assert statistics.lists > 0 and statistics.regions >= statistics.converted > 0
    assert statistics.pages >= 512
    assert repr(statistics).startswith(f"Statistics(lists={statistics.lists}, pages={statistics.pages}")
    assert (array == array[0]).all()


def test_without_a_daemon_nothing_is_tracked() -> None:
    with pytest.raises(ConnectionRefusedError, match="no daemon listens at /nonexistent/hugepilot.sock") as refused:
        hugepilot.Tracking(socket=Path(NO_DAEMON))
    assert refused.value.errno == errno.ECONNREFUSED


def test_options_out_of_range_are_refused() -> None:
    with pytest.raises(OSError, match="an interval of 0 ms is out of range"):
        hugepilot.Tracking(interval=0.0, socket=NO_DAEMON)
    with pytest.raises(ValueError, match="not contiguous"):
        hugepilot.Tracking([np.zeros(100)[::2]], socket=NO_DAEMON)
    with pytest.raises(OSError, match="name ranges of interest"):
        hugepilot.Tracking(own_writes=True, socket=NO_DAEMON)


def test_a_tracking_can_be_ended_twice_and_begun_again() -> None:
    array = on_base_pages(4 * MIB)
    for _ in range(2):
        tracking = own_writes(array)
        tracking.close()
        tracking.close()
    assert tracking.statistics().last_error is None


def test_a_forked_child_leaves_the_tracking_of_its_parent_alone() -> None:
    array = on_base_pages(16 * MIB)
    tracking = own_writes(array, max_growth_bytes=4 * MIB)
    child = os.fork()
    if child == 0:
        tracking.close()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    before = tracking.statistics().lists
    write_until(array, lambda: tracking.statistics().lists > before)
    tracking.close()
