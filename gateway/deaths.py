"""Whose fault was it that the process died: what the journal tells of each input that was being worked on. Pure: numbers, no files.

An input that brings the daemon down (by a fault in a library, by eating all memory, by blocking the loop until the watchdog strikes) would
do so again after each start, and nobody would be answered any more. It has to be found and set aside. But a process dies for other reasons
as well, and whoever was being answered then has nothing to do with it: a kill -9 or a power cut must never cost anybody an answer. A death
says nothing about its reason, so that it is the pattern that tells:

- A death counts against an input only where it was under way: its turn had begun (`started`), or its answer was there and not yet
  delivered. What merely waited is cleared: the daemon died without it. So is, in the pause before trials (`held`), everybody: that a
  daemon which is killed again and again at once still gets to answer somebody between two pauses. A stop in order (`ended`) counts
  against nobody, whatever it cut.
- After `TOGETHER` deaths in a row it is a suspect, like everything that was under way with it. Suspects are tried alone (`gateway.trials`):
  nothing else runs, and that is on record (`alone`) before it begins. Only a death in that state counts as one of its own.
- After `ALONE` deaths of its own it is set aside.

Why two of them, and why a trial begins with a pause (`gateway.trials`, QUIET). A trial takes as long as a turn, say w seconds, and a
process that is killed once in T seconds dies within it with a chance of w/T: with 1 s and 30 s, one suspect in thirty would be convicted by
one death. The pause makes a daemon that is killed often die before the trial, which clears the suspect, and one that is killed rarely
hardly ever dies in it. At the worst pace, one kill in 5 s, both deaths together meet one innocent suspect in 200 with turns of 1 s, one in
5,000 with turns of 0.2 s; and to become one it had to be under way at two kills in a row. Where kills come quicker than the pause, nobody
is tried at all. What is guilty dies in the trial every time.

A death with somebody on trial clears nobody, since it is explained. Everything is counted anew once there is a reply: showing that is
another work than the one that led to it.
"""

from __future__ import annotations

from dataclasses import dataclass

TOGETHER = 2
ALONE = 2


@dataclass(slots=True)
class Deaths:
    """What is known of one input. `running`: a turn of it began in this life and has not ended; `answered`: it has an answer, or a reply,
    which is not delivered yet; `alone`: nothing else runs."""

    running: bool = False
    answered: bool = False
    alone: bool = False
    crashes: int = 0
    """Deaths in a row while it was under way."""
    own: int = 0
    """Those among them at which nothing else ran."""

    @property
    def suspect(self) -> bool:
        """It is to be tried alone."""
        return self.crashes >= TOGETHER and not self.guilty

    @property
    def guilty(self) -> bool:
        """It is not to be tried any more."""
        return self.own >= ALONE

    def died(self, *, explained: bool, held: bool = False) -> None:
        """The process ended without having been told to. `explained`: somebody was on trial. `held`: nothing else was worked on."""
        if self.alone or ((self.running or self.answered) and not held):
            self.crashes += 1
            self.own += self.alone
        elif not explained:
            self.crashes = self.own = 0

    def over(self) -> None:
        """A life of the process has ended, in whatever way."""
        self.running = self.alone = False

    def replied(self) -> None:
        """There is a reply: what led to it has not killed us."""
        self.running = self.alone = False
        self.answered = True
        self.crashes = self.own = 0
