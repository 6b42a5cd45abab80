import subprocess
import sys
from pathlib import Path

import hugepilot
import numpy as np
import pytest
from recordings import REGION, Mapping, Region, observation, write

ROOT = Path(__file__).resolve().parents[2]
HEAP, CACHE = Mapping(8, 10, "[heap]"), Mapping(20, 24, "/dev/shm/cache")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Two observations: a region is only in the second, one only in the first, and the heap has grown."""
    first = observation(1.0, [Region(9, 0, 7.0), Region(20, 1, 500.0, huge=True)], [HEAP, CACHE])
    grown = HEAP._replace(end=11)
    second = [Region(8, 0, 3.0, present=100), Region(9, 0, 8.0), Region(30, None, 1.0)]
    return write(tmp_path / "cache.hugepilot", [first, observation(2.5, second, [grown, CACHE], "accessed")])


def test_observations_are_rows_and_regions_are_columns(path: Path) -> None:
    recording = hugepilot.Recording(path)
    assert (recording.name, recording.pid) == ("cache", 4242)
    assert recording.times.tolist() == [1.0, 2.5]
    assert recording.meanings == ["walked", "accessed"]
    assert (recording.addresses // REGION).tolist() == [8, 9, 20, 30]
    assert recording.heat().tolist() == [[0.0, 7.0, 500.0, 0.0], [3.0, 8.0, 0.0, 1.0]]
    assert recording.huge().tolist() == [[False, False, True, False], [False] * 4]
    assert (recording.present_bytes() // 4096).tolist() == [[0, 512, 512, 0], [100, 512, 0, 512]]
    assert repr(recording) == "<Recording of cache (process 4242): 2 observations of 4 regions>"


def test_arrays_have_types_to_calculate_with(path: Path) -> None:
    recording = hugepilot.Recording(str(path))
    assert recording.times.dtype == recording.heat().dtype == np.dtype(np.float64)
    assert recording.huge().dtype == np.dtype(np.bool_)
    integers = [recording.addresses, recording.mapping_index, recording.present_bytes()]
    assert all(array.dtype == np.dtype(np.int64) for array in integers)


def test_a_mapping_that_grows_stays_the_same(path: Path) -> None:
    recording = hugepilot.Recording(path)
    assert recording.mapping_index.tolist() == [0, 0, 1, -1]
    heap, cache = recording.mappings
    assert (heap.start, heap.end, heap.name) == (8 * REGION, 11 * REGION, "[heap]")
    assert cache.name == "/dev/shm/cache"
    assert repr(heap) == 'Mapping(0x1000000-0x1600000 "[heap]")'


def test_a_region_has_the_mapping_that_held_it_last(tmp_path: Path) -> None:
    mapped_anew = [Mapping(8, 10, "index"), CACHE]
    lines = [
        observation(1.0, [Region(8, 0, 1.0)], [HEAP, CACHE]),
        observation(2.0, [Region(8, 0, 1.0)], mapped_anew),
    ]
    recording = hugepilot.Recording(write(tmp_path / "a", lines))
    assert recording.mapping_index.tolist() == [1]
    assert [mapping.name for mapping in recording.mappings] == ["[heap]", "index"]


def test_what_the_tracker_could_not_see_is_not_a_number(tmp_path: Path) -> None:
    regions = [Region(8, 0, 0.0, present=300, unobserved=300), Region(9, 0, 5.0, present=300, unobserved=299)]
    recording = hugepilot.Recording(write(tmp_path / "a", [observation(1.0, regions, [HEAP])]))
    np.testing.assert_array_equal(recording.heat(), [[np.nan, 5.0]])
    assert (recording.present_bytes() == 300 * 4096).all()


def test_a_part_of_a_recording_can_be_read(tmp_path: Path) -> None:
    hours = [observation(hour * 3600.0, [Region(8 + hour % 2, 0, hour)], [HEAP]) for hour in range(1, 9)]
    path = write(tmp_path / "a", hours)
    part = hugepilot.Recording(path, start=7200, stop=3 * 3600.0)
    assert part.times.tolist() == [7200.0] and part.heat().tolist() == [[2.0]]
    assert hugepilot.Recording(path, start=7200.1).times.tolist() == [hour * 3600.0 for hour in range(3, 9)]
    with pytest.raises(ValueError, match="no observation of .* ended from 90000 s up to inf s"):
        hugepilot.Recording(path, start=90000)


def test_errors_say_what_the_file_is(tmp_path: Path, path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="cannot read the recording .*missing: No such file"):
        hugepilot.Recording(tmp_path / "missing")
    (tmp_path / "text").write_text("hello")
    with pytest.raises(hugepilot.RecordingError, match="is not a recording of hugepilot's"):
        hugepilot.Recording(tmp_path / "text")
    with pytest.raises(hugepilot.RecordingError, match="has version 3 of its format"):
        hugepilot.Recording(write(tmp_path / "newer", [], version=3))
    with pytest.raises(hugepilot.RecordingError, match="holds no observation"):
        hugepilot.Recording(write(tmp_path / "empty", []))
    assert issubclass(hugepilot.RecordingError, ValueError)


def test_a_recording_that_ends_early_is_read_as_far_as_it_goes(tmp_path: Path) -> None:
    damaged = observation(2.0, [Region(8, 0, 1.0)])
    damaged["regions"]["huge"] = []
    path = write(tmp_path / "a", [observation(1.0, [Region(8, 0, 1.0)], [HEAP]), damaged])
    with pytest.warns(UserWarning, match="ends early, after 1 observations"):
        assert hugepilot.Recording(path).times.tolist() == [1.0]


def test_a_matrix_has_a_largest_size(tmp_path: Path) -> None:
    """A small file must not take all memory: here each observation sees another region."""
    far = Mapping(1, 1 << 20, "")
    count = 1 << 14
    lines = [observation(float(number), [Region(number, 0, 1.0)], [far]) for number in range(1, count + 2)]
    with pytest.raises(ValueError, match="choose a part of it by start and stop"):
        hugepilot.Recording(write(tmp_path / "a", lines))
    part = hugepilot.Recording(tmp_path / "a", stop=100)
    assert part.heat().shape == (99, 99) and part.heat().sum() == 99


def test_a_file_of_hugepilots_is_read() -> None:
    recording = hugepilot.Recording(ROOT / "fuzz/seeds/recording/whole-file")
    assert recording.name == "sleep"
    assert recording.heat().shape == (2, 4)
    np.testing.assert_array_equal(recording.heat()[1], [90000.0, 500.0, 20000.5, np.nan])


def test_the_example_prints_the_hottest_mappings(path: Path) -> None:
    example = ROOT / "python/examples/heat.py"
    done = subprocess.run([sys.executable, example, path], stdout=subprocess.PIPE, text=True, check=True)
    lines = done.stdout.splitlines()
    assert "heat.shape = (2, 4)" in lines[0]
    assert [line.split() for line in lines[2:]] == [
        ["250", "0.0", hex(20 * REGION), "/dev/shm/cache"],
        ["9", "2.4", hex(8 * REGION), "[heap]"],
    ]
