"""Places that go on for ever: noticed, and cut with a reason.

addresses    what a URL alone gives away: paths that repeat, session ids, dates, combined parameters
family       pages that breed their like, and for how long they may
watch        all of it, for all sites, in bounded memory
"""

from headway.policy.traps.lesson import Lesson, Mirroring
from headway.policy.traps.watch import TrapWatch

__all__ = ["Lesson", "Mirroring", "TrapWatch"]
