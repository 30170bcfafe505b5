"""A process in which epifed's own code finds nothing that Windows has not.

Not Windows itself: modules of POSIX cannot be imported by epifed's code, functions of `os` that are
not there cannot be called by it, links cannot be made, a file that is open cannot be replaced, and
names that Windows refuses are refused.
"""

from pathlib import Path

POSIX = ("fcntl", "resource", "pwd", "grp", "termios", "pty", "syslog")
ABSENT = ("torch", "pandas", "geopandas", "pyogrio", "opacus", "hubdata")
GONE = (
    *("fork", "forkpty", "killpg", "getpgid", "getuid", "geteuid", "getgid", "getegid"),
    *("getgroups", "setsid", "setpgid", "mkfifo", "chown", "lchown", "fchown", "nice"),
    *("getpriority", "setpriority", "uname", "sysconf", "wait3", "wait4"),
)
"""Of `os`; what is missing of `signal`, `test_windows.py` looks for in the code."""
CODE = f"""
import sys


class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {ABSENT}:
            raise ModuleNotFoundError(f"No module named '{{name}}'", name=name)


sys.meta_path.insert(0, Absent())

import builtins

imports = builtins.__import__


def on_windows(name, globals=None, locals=None, fromlist=(), level=0):
    if name in {POSIX} and (globals or {{}}).get("__name__", "").startswith("epifed"):
        raise ModuleNotFoundError(f"No module named '{{name}}'", name=name)
    return imports(name, globals, locals, fromlist, level)


builtins.__import__ = on_windows
"""
STRICT = f"""
import functools
import os


def gone(name, function):
    @functools.wraps(function)
    def call(*args, **options):
        if sys._getframe(1).f_globals.get("__name__", "").startswith("epifed"):
            raise AttributeError(f"module 'os' has no attribute '{{name}}'")
        return function(*args, **options)

    return call


for name in {GONE}:
    setattr(os, name, gone(name, getattr(os, name)))

FOLDER = os.environ["LIKE_WINDOWS"]


def mine(path):
    return isinstance(path, (str, os.PathLike)) and os.fspath(path).startswith(FOLDER)


def fine(path):
    inside = os.fspath(path)[len(FOLDER):]
    for part in inside.split("/"):
        if set(part) & set('<>:"|?*\\\\\\\\') or part != part.rstrip(". "):
            raise OSError(22, "a name that Windows refuses", inside)


def held(path):
    for fd in os.listdir("/proc/self/fd"):
        try:
            if os.readlink(f"/proc/self/fd/{{fd}}") == os.path.realpath(path):
                return True
        except OSError:
            pass
    return False


def watch(event, args):
    if event == "os.symlink":
        raise OSError(1314, "A required privilege is not held by the client")
    if event == "open" and mine(args[0]) and args[1] and set(str(args[1])) & set("wax+"):
        fine(args[0])
    if event == "os.mkdir" and mine(args[0]):
        fine(args[0])
    if event in ("os.rename", "os.remove") and mine(args[0]):
        for path in [path for path in args[:2] if mine(path)]:
            fine(path)
            if held(path):
                raise PermissionError(13, "The process cannot access the file", os.fspath(path))


sys.addaudithook(watch)
"""


def lay(folder: Path) -> Path:
    """A folder for PYTHONPATH whose processes are like that; packages that are absent, too."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "sitecustomize.py").write_text(CODE)
    return folder


def lay_strict(folder: Path) -> Path:
    """The same; with LIKE_WINDOWS, the folder whose files are watched, in the environment."""
    lay(folder)
    (folder / "sitecustomize.py").write_text(CODE + STRICT)
    return folder
