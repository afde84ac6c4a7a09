"""On what it was measured, as far as it matters to ratios: the kind of machine and the versions."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
from pathlib import Path

_ASKED = {
    "nginx": (["nginx", "-v"], r"nginx/(\S+)"),
    "wget2": (["wget2", "--version"], r"Wget2 (\S+)"),
    "wget": (["wget", "--version"], r"Wget (\S+)"),
    "HTTrack": (["httrack", "--version"], r"version (\S+)"),
    "aria2": (["aria2c", "--version"], r"version (\S+)"),
}


def describe() -> dict[str, str]:
    told = {
        "cores": str(len(os.sched_getaffinity(0))),
        "memory": f"{os.sysconf('SC_PHYS_PAGES') * os.sysconf('SC_PAGE_SIZE') / 2**30:.0f} GiB",
        "system": _system(),
        "Linux": ".".join(platform.release().split(".")[:2]),
        "Python": platform.python_version(),
    }
    path = os.pathsep.join([os.environ["PATH"], "/usr/sbin"])
    for name, (command, pattern) in _ASKED.items():
        program = shutil.which(command[0], path=path)
        if program is None:
            continue
        done = subprocess.run([program, *command[1:]], capture_output=True, text=True, check=False)
        found = re.search(pattern, done.stdout + done.stderr)
        told[name] = found[1].partition("+")[0] if found else "?"
    return told


def _system() -> str:
    release = Path("/etc/os-release")
    found = (
        re.search(r'^PRETTY_NAME="([^"]+)"', release.read_text(), re.MULTILINE) if release.exists() else None
    )
    return found[1].split(" (")[0] if found else platform.system()
