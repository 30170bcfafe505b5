"""The units of docs/systemd, run by a systemd of their own with a program in epifed's place."""

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.waiting import wait_for

pytestmark = pytest.mark.field

UNITS = sorted((Path(__file__).resolve().parents[2] / "docs" / "systemd").glob("*.service"))
SYSTEMD = Path("/lib/systemd/systemd")
USER = 64055

PARTIES = [unit.stem.removeprefix("epifed-") for unit in UNITS]

# Starts systemd as the first process of a machine made of an overlay over this one's root. Its
# mounts, processes, network and control group are its own and end with it.
BOOT = r"""
set -e
work=$1; group=$2
echo $$ >"$group/cgroup.procs"
exec unshare --mount --pid --cgroup --uts --ipc --net --fork --kill-child --propagation private \
  sh -ec '
work=$1
mkdir "$work/over"; mount -t tmpfs tmpfs "$work/over"
cd "$work/over"; mkdir upper store root
mount -t overlay overlay -o "lowerdir=/,upperdir=$PWD/upper,workdir=$PWD/store" root
cd root
rm -rf etc/systemd/system etc/systemd/*.d opt/epifed
cp -r "$work/units" etc/systemd/system
mkdir -p opt/epifed/bin etc/epifed var/lib/epifed home/somebody
chmod 777 etc/epifed  # so that it is systemd that forbids
cp "$work/program" opt/epifed/bin/epifed
echo "epifed:x:64055:64055::/var/lib/epifed:/bin/sh" >>etc/passwd
echo "epifed:x:64055:" >>etc/group
mount --bind "$work/epifed" var/lib/epifed
mount -t proc proc proc; mount -t sysfs -o ro sysfs sys; mount -t cgroup2 cgroup2 sys/fs/cgroup
mount -t tmpfs -o mode=755 tmpfs run; mount -t tmpfs -o mode=1777 tmpfs tmp
mount -t tmpfs -o mode=755 tmpfs dev
for one in null zero full random urandom tty; do
  touch dev/$one; mount --bind /dev/$one dev/$one
done
mkdir dev/shm; mount -t tmpfs -o mode=1777 tmpfs dev/shm
mkdir -p old; pivot_root . old; umount -l old
exec env -i container=epifed PATH=/usr/sbin:/usr/bin:/sbin:/bin SYSTEMD_LOG_TARGET=null \
  /lib/systemd/systemd --unit=all.target
' sh "$work"
"""

# In epifed's place: tells as whom it runs, what it sees and where it can write, is killed at its
# first start, ends well at its second, and stays after that.
PROGRAM = r"""#!/bin/sh
said=/var/lib/epifed/coordinator/$2
can() { if touch "$1/.$2" 2>/dev/null; then echo yes; else echo no; fi; }
[ -w /var/lib/epifed/cases.csv ] && cases=yes || cases=no
[ -r /var/lib/epifed/cases.csv ] && read=yes || read=no
[ -e /home/somebody ] && home=yes || home=no
echo "$(id -un) home=$home etc=$(can /etc/epifed "$2")" \
  "own=$(can /var/lib/epifed "$2") tmp=$(can /tmp "$2") cases=$cases read=$read" >>"$said"
case $(wc -l <"$said") in
  1) kill -9 $$ ;;
  2) exit 0 ;;
esac
exec sleep 600
"""


def _group() -> Path:
    """A new control group below this process's own."""
    mounts = Path("/proc/self/mounts").read_text().splitlines()
    roots = [line.split()[1] for line in mounts if line.split()[2] == "cgroup2"]
    lines = Path("/proc/self/cgroup").read_text().splitlines()
    own = [line[3:] for line in lines if line.startswith("0::")]
    if not roots or not own:
        pytest.skip("no cgroup v2 here, which systemd needs")
    made = Path(roots[0] + own[0]) / f"epifed-test-{os.getpid()}"
    try:
        made.mkdir()
    except OSError as error:
        pytest.skip(f"no control group can be made here: {error.strerror}")
    return made


def _lay_out(folder: Path) -> None:
    """The units, bare targets that they need, the program, and the user's folder."""
    units = folder / "units"
    units.mkdir()
    for unit in UNITS:
        shutil.copy(unit, units)
        soon = units / f"{unit.name}.d"
        soon.mkdir()
        (soon / "soon.conf").write_text("[Service]\nRestartSec=200ms\nStandardOutput=null\n")
    for target in ("sysinit", "basic", "network-online", "shutdown"):
        (units / f"{target}.target").write_text("[Unit]\nDefaultDependencies=no\n")
    wanted = " ".join(unit.name for unit in UNITS)
    (units / "all.target").write_text(f"[Unit]\nWants={wanted}\n")
    (folder / "program").write_text(PROGRAM)
    (folder / "program").chmod(0o755)
    (folder / "epifed" / "coordinator").mkdir(parents=True)
    (folder / "epifed" / "cases.csv").write_text("date,region,cases\n")
    for path in (folder / "epifed", *(folder / "epifed").iterdir()):
        os.chown(path, USER, USER)


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, list[str]]]:
    """What the program told under each unit once all have come back as often as they should."""
    if os.name != "posix" or os.geteuid() != 0:
        pytest.skip("only root may boot a systemd of its own")
    if not SYSTEMD.exists() or not shutil.which("unshare"):
        pytest.skip("no systemd on this machine")
    folder = tmp_path_factory.mktemp("machine")
    _lay_out(folder)
    group = _group()
    log = folder / "log"
    with log.open("w") as told:
        running = subprocess.Popen(
            ["sh", "-c", BOOT, "boot", str(folder), str(group)], stdout=told, stderr=told
        )
    try:
        yield _heard(folder / "epifed" / "coordinator", running, log)
    finally:
        running.kill()
        running.wait()
        _remove(group)


def _heard(folder: Path, running: subprocess.Popen[bytes], log: Path) -> dict[str, list[str]]:
    """What was told once each came back as often as it should, and for a while after that."""

    def told() -> dict[str, list[str]]:
        return {path.name: path.read_text().splitlines() for path in folder.iterdir()
                if not path.name.startswith(".")}  # fmt: skip

    def back() -> bool:
        if running.poll() is not None:
            pytest.skip(f"no systemd can be booted here: {log.read_text().strip()[-200:]}")
        now = told()
        return all(len(now.get(party, ())) >= _starts(party) for party in PARTIES)

    wait_for(back, "every service again", every=0.2)
    time.sleep(2)  # one that comes back too often does it now
    return told()


def _starts(party: str) -> int:
    """How often a service is started: always again, or only after it was killed."""
    return 3 if party in {"server", "site", "aggregator"} else 2


def _remove(group: Path) -> None:
    """Remove a control group when its last process is gone."""
    for _ in range(50):
        try:
            for path in sorted((path for path in group.rglob("*") if path.is_dir()), reverse=True):
                path.rmdir()
            group.rmdir()
        except OSError:
            time.sleep(0.1)
        else:
            return


@pytest.mark.parametrize("party", PARTIES)
def test_a_service_comes_back_by_its_rule(said: dict[str, list[str]], party: str) -> None:
    assert len(said[party]) == _starts(party)


@pytest.mark.parametrize("party", PARTIES)
def test_a_service_writes_where_it_must_and_nowhere_else(
    said: dict[str, list[str]], party: str
) -> None:
    own = "no" if party == "dashboard" else "yes"
    cases = "no" if party in {"site", "dashboard"} else "yes"
    expected = f"epifed home=no etc=no own={own} tmp=yes cases={cases} read=yes"
    assert set(said[party]) == {expected}
