"""A network of our own to measure in: eight servers (or any number) behind links of their own rate and
round-trip time, and the crawler's interface, whose counters say what crossed the wire.

    result = run("benchmarks.bandwidth.drive:settings", links, {"seconds": 40})

starts a process inside the lab and calls the named coroutine function there with the `Lab` and the
argument. Everything lives in anonymous namespaces of that process: when it ends, or is killed, or the
caller dies, the kernel takes all of it away.
"""

from experiments.lab.network import Bottleneck, Link, why_not
from experiments.lab.run import Lab, LabError, ServerAt, run
from experiments.lab.wire import Recording, Wire

__all__ = ["Bottleneck", "Lab", "LabError", "Link", "Recording", "ServerAt", "Wire", "run", "why_not"]
