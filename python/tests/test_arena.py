import errno
import gc
import os
from collections.abc import Callable

import hugepilot
import numpy as np
import pytest

MIB = 1 << 20


def test_arrays_lie_in_the_arena_and_take_memory_as_they_need_it() -> None:
    arena = hugepilot.Arena(7 * MIB)
    assert (arena.nbytes, arena.backed_bytes, arena.huge_bytes) == (8 * MIB, 0, 0)
    array = arena.empty((1000, 8), dtype="float32")
    array[:] = np.arange(8)
    assert array.shape == (1000, 8) and array.dtype == np.dtype(np.float32)
    assert array.flags.writeable and array.flags.c_contiguous and array.flags.aligned
    assert array.sum() == 28_000
    assert arena.backed_bytes == 2 * MIB
    assert arena.backing in ("huge-pages", "base-pages")
    assert (arena.backing == "huge-pages") == (arena.huge_bytes == 2 * MIB)
    assert array.data.nbytes == 32_000
    assert repr(arena).startswith("<Arena of 8388608 bytes: 2097152 taken")


def test_an_array_is_made_as_numpy_makes_one() -> None:
    arena = hugepilot.Arena(MIB)
    assert arena.empty(3).dtype == np.dtype(np.float64)
    assert arena.empty((0, 3)).shape == (0, 3)
    assert arena.empty(()).shape == ()
    assert arena.empty(np.int64(5), np.dtype([("key", "u4"), ("value", "f8")])).dtype.names == ("key", "value")


def test_an_array_keeps_its_memory_when_the_arena_is_gone() -> None:
    part = hugepilot.Arena(2 * MIB).empty(MIB, np.uint8)[1000:2000]
    part[:] = 7
    gc.collect()
    others = [hugepilot.Arena(2 * MIB).empty(MIB, np.uint8) for _ in range(8)]
    for other in others:
        other[:] = 1
    assert (part == 7).all()


def test_memory_is_free_again_with_the_last_view_of_it() -> None:
    arena = hugepilot.Arena(4 * MIB)
    array = arena.empty(3 * MIB, np.uint8)
    view = array[::2].data
    del array
    with pytest.raises(MemoryError, match="an arena of 4194304 bytes has no room for 3145728 more"):
        arena.empty(3 * MIB, np.uint8)
    view.release()
    gc.collect()
    assert arena.empty(3 * MIB, np.uint8).nbytes == 3 * MIB


def test_errors_say_what_cannot_be() -> None:
    with pytest.raises(OSError, match="cannot make an arena of 0 bytes") as invalid:
        hugepilot.Arena(0)
    assert invalid.value.errno == errno.EINVAL
    arena = hugepilot.Arena(2 * MIB)
    with pytest.raises(TypeError, match="an arena holds plain values, and values of dtype object"):
        arena.empty(3, object)
    with pytest.raises(TypeError, match="have no size"):
        arena.empty(3, "V0")
    with pytest.raises(ValueError, match="no memory has room for the shape"):
        arena.empty((1 << 62, 1 << 62))


def in_child(run: Callable[[], None]) -> int:
    """Runs a function in a forked child, and returns its exit status, negative for a signal."""
    child = os.fork()
    if child == 0:
        try:
            run()
        except BaseException as error:
            os.write(2, f"{error!r}\n".encode())
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_a_forked_child_has_a_copy() -> None:
    arena = hugepilot.Arena(4 * MIB)
    array = arena.empty(1000)
    array[:] = 3

    def child() -> None:
        assert (array == 3).all()
        array[:] = 4
        arena.empty(1000)[:] = 5

    assert in_child(child) == 0
    assert (array == 3).all()


def test_a_forked_child_leaves_reserved_memory_alone() -> None:
    arena = hugepilot.Arena(4 * MIB, reserved=True)
    array = arena.empty(1000)
    array[:] = 3

    def child() -> None:
        nonlocal arena, array
        with pytest.raises(RuntimeError, match="forked children do not get"):
            arena.empty(1000)
        del arena, array
        gc.collect()

    assert in_child(child) == 0
    assert (array == 3).all()
    assert arena.backing in ("pool", "huge-pages", "base-pages")
