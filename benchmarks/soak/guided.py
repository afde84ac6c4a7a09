"""`python -m benchmarks.soak.guided TARGET [-runs=100000 ...]`: fuzzing led by coverage.

Needs the package atheris, which is not among headway's own: it looks which branches an input takes, and keeps
changing those that take new ones. The targets and checks are the same as for `--fuzz`.
"""

from __future__ import annotations

import sys


def main() -> int:
    try:
        import atheris  # type: ignore[import-not-found, unused-ignore]
    except ImportError:
        print("the package atheris is not installed: pip install atheris", file=sys.stderr)
        return 2
    with atheris.instrument_imports(include=["headway"]):
        from benchmarks.soak.targets import TARGETS
    from hypothesis import given, settings

    if len(sys.argv) < 2 or sys.argv[1] not in TARGETS:
        print(f"name a target: {', '.join(TARGETS)}", file=sys.stderr)
        return 2
    target = TARGETS[sys.argv[1]]

    @settings(database=None, deadline=None)
    @given(target.inputs)
    def check(case: object) -> None:
        target.check(case)

    # Random octets are turned into inputs of the target's own kind, so that they get past the first check.
    atheris.Setup([sys.argv[0], *sys.argv[2:]], check.hypothesis.fuzz_one_input)
    atheris.Fuzz()
    return 0


if __name__ == "__main__":
    sys.exit(main())
