"""The process inside the lab: builds the lab around itself, runs the asked-for function, prints its result
as JSON and ends; everything it built ends with it. It also ends when its caller does."""

from __future__ import annotations

import asyncio
import importlib
import os
import sys
import threading

import msgspec
from experiments.lab.run import Job, lab_here


def end_with_the_caller() -> None:
    # Not through the buffered object, which a thread must not hold while the interpreter ends.
    while os.read(0, 4096):
        pass
    os._exit(1)


def main() -> None:
    job = msgspec.json.decode(sys.stdin.buffer.readline(), type=Job)
    threading.Thread(target=end_with_the_caller, daemon=True).start()
    result_to = os.dup(sys.stdout.fileno())
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    module, _, function = job.target.partition(":")
    target = getattr(importlib.import_module(module), function)
    with lab_here(job) as lab:
        result = asyncio.run(target(lab, job.argument))
    with os.fdopen(result_to, "wb") as out:
        out.write(msgspec.json.encode(result, enc_hook=float))


if __name__ == "__main__":
    main()
