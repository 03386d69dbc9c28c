"""What a process can have: the least that machine, control groups and its own limits allow."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from outrider.config.memory import Memory

GIB = 1 << 30
MEMINFO = "MemTotal:       16777216 kB\nMemFree: 1 kB\nMemAvailable:    8388608 kB\n"


def machine(root: Path, groups: str, **files: str) -> Memory:
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/meminfo").write_text(MEMINFO)
    (root / "proc/self/cgroup").write_text(groups)
    for name, text in files.items():
        path = root / "sys/fs/cgroup" / name.replace("__", "/").replace("_x_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return Memory.read(root)


def test_a_machine_alone(tmp_path: Path) -> None:
    assert machine(tmp_path, "0::/\n") == Memory(16 * GIB, 8 * GIB)


def test_a_group_without_a_limit(tmp_path: Path) -> None:
    found = machine(tmp_path, "0::/a\n", a__memory_x_max="max\n", a__memory_x_current=f"{GIB}\n")
    assert found == Memory(16 * GIB, 8 * GIB)


def test_a_group_with_a_limit(tmp_path: Path) -> None:
    found = machine(
        tmp_path, "0::/a/b\n", a__b__memory_x_max=f"{4 * GIB}", a__b__memory_x_current=f"{GIB}"
    )
    assert found == Memory(4 * GIB, 3 * GIB)


def test_cached_files_can_go(tmp_path: Path) -> None:
    found = machine(
        tmp_path,
        "0::/a\n",
        a__memory_x_max=f"{4 * GIB}",
        a__memory_x_current=f"{3 * GIB}",
        a__memory_x_stat=f"anon 5\ninactive_file {2 * GIB}\nsock 0\n",
    )
    assert found == Memory(4 * GIB, 3 * GIB)


def test_the_limit_of_a_parent(tmp_path: Path) -> None:
    found = machine(
        tmp_path, "0::/a/b\n", a__memory_x_max=f"{2 * GIB}", a__memory_x_current=f"{3 * GIB}"
    )
    assert found == Memory(2 * GIB, 0)


def test_a_container_sees_its_group_as_the_root(tmp_path: Path) -> None:
    found = machine(
        tmp_path, "0::/elsewhere\n", memory_x_max=f"{6 * GIB}", memory_x_current=f"{GIB}"
    )
    assert found == Memory(6 * GIB, 5 * GIB)


def test_the_older_groups(tmp_path: Path) -> None:
    found = machine(
        tmp_path,
        "5:cpu,cpuacct:/a\n4:memory:/a\n",
        memory__a__memory_x_limit_in_bytes=f"{4 * GIB}",
        memory__a__memory_x_usage_in_bytes=f"{2 * GIB}",
        memory__a__memory_x_stat=f"total_inactive_file {GIB}\n",
    )
    assert found == Memory(4 * GIB, 3 * GIB)


def test_a_system_without_any_of_these_files(tmp_path: Path) -> None:
    found = Memory.read(tmp_path)
    assert found.total == found.free > 0


def test_this_machine() -> None:
    found = Memory.read()
    assert 0 < found.free <= found.total


@pytest.mark.skipif(sys.platform != "linux", reason="addresses are not bounded there")
def test_the_bound_of_the_address_space() -> None:
    ran = subprocess.run(
        [
            sys.executable,
            "-c",
            "import resource\n"
            "from outrider.config.memory import Memory\n"
            "resource.setrlimit(resource.RLIMIT_AS, (1 << 40, resource.RLIM_INFINITY))\n"
            "before = Memory.read()\n"
            "resource.setrlimit(resource.RLIMIT_AS, (6 << 30, resource.RLIM_INFINITY))\n"
            "after = Memory.read()\n"
            "print(after.total <= 6 << 30, after.free < 6 << 30, after.free <= before.free)\n",
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    assert ran.stdout.split() == ["True", "True", "True"]
