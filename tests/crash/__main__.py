"""`./dev crash`: kill the daemon again and again under people who talk on both networks at once, and say what it cost.

Rounds of some forty kills, each with a fresh folder and another way to run (polling or webhook, answers that grow or not). Exit code 1
where something is not zero that must be; then the folder is kept, and the story of the inputs concerned is printed.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from tests.crash.lives import Life
from tests.crash.moments import Deck, reachable
from tests.crash.report import Report
from tests.crash.rivals import IDLE, LIMIT, MOMENTS, Moment, Trial, trial
from tests.crash.round import Outcome, run, ways

ENOUGH = 200
"""From so many kills on, each named place must have been reached."""


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="./dev crash", description="Kill the daemon under load, and count what is lost or said twice.")
    parser.add_argument("--kills", type=int, default=100, help="how often the daemon is ended (default 100)")
    parser.add_argument("--seed", default="", help="throws other dice")
    parser.add_argument("--channels", default="telegram,discord", help="which networks (default: telegram,discord)")
    parser.add_argument("--chats", type=int, default=100, help="direct chats on each network (default 100)")
    parser.add_argument("--round", type=int, default=40, help="kills on one data folder (default 40)")
    parser.add_argument("--keep", action="store_true", help="keep all folders")
    return parser.parse_args()


def fakes_are_quiet() -> None:
    """A daemon that is killed in the middle of a request is no news to the servers that it talks to."""
    logging.getLogger("aiohttp.server").setLevel(logging.CRITICAL)


async def main(args: argparse.Namespace) -> int:
    fakes_are_quiet()
    channels = tuple(args.channels.split(","))
    began = time.monotonic()
    places = {place for way in ways(channels) for place in reachable(way.channels, webhook=way.webhook, streamed=way.streamed)}
    report, deck = Report(places), Deck(args.seed)
    base = Path(tempfile.mkdtemp(prefix="parlour-crash-"))
    done = 0

    def tell(life: Life) -> None:
        nonlocal done
        done += 1
        mark = "" if life.struck else " (not struck)"
        print(
            f"{done:5} of {args.kills}  {time.monotonic() - began:6.0f} s  {life.ended - life.began:4.1f} s  {life.plan}{mark}", flush=True
        )

    number = 0
    while done < args.kills:
        way = ways(channels)[number % 4]
        folder = base / f"round-{number}"
        folder.mkdir()
        print(f"round {number}: {way}", flush=True)
        outcome = await run(folder, f"{args.seed}{number}", deck, way, args.chats, min(args.round, args.kills - done), tell)
        report.add(outcome)
        print(f"round {number}: {len(outcome.faults)} faults, {outcome.counts['inputs']} inputs", flush=True)
        _keep(folder, outcome, keep=args.keep)
        number += 1
    missing = report.unreached() if args.kills >= ENOUGH else []
    trials = [
        (moment, streamed, await _trial(base, moment, channels, streamed=streamed)) for streamed in (True, False) for moment in MOMENTS
    ]
    print(report.table())
    print(f"five turns in flight on each network, kill -9, {IDLE} idle chats on each (limit {LIMIT:g} s)")
    for moment, streamed, each in trials:
        name = f"{moment}, {'streaming' if streamed else 'streaming off'}: answered after; sent to idle chats; faults"
        print(f"  {name:<76} {max(each.seconds.values()):>5.2f} s {each.idle:>2} {len(each.faults):>2}")
    failed = any(each.faults or each.idle or max(each.seconds.values()) > LIMIT for _, _, each in trials)
    print(f"  {'seed':<76} {args.seed or '(none)':>10}\n  {'seconds':<76} {time.monotonic() - began:>10.0f}")
    if missing:
        print(f"named places that were never reached: {', '.join(missing)}")
    bad = bool(report.faults() or missing or failed)
    if not bad and not args.keep:
        shutil.rmtree(base)
    return 1 if bad else 0


async def _trial(base: Path, moment: Moment, channels: Sequence[str], *, streamed: bool) -> Trial:
    folder = Path(tempfile.mkdtemp(prefix="rivals-", dir=base))
    done = await trial(folder, moment, streamed=streamed, channels=channels)
    if done.faults:
        print("\n".join(map(str, done.faults)) + f"\nkept: {folder}", flush=True)
    else:
        shutil.rmtree(folder)
    return done


def _keep(folder: Path, outcome: Outcome, *, keep: bool) -> None:
    """A folder with a fault stays, with the stories in it."""
    if outcome.faults:
        text = "\n".join(map(str, outcome.faults)) + "\n\n" + "\n\n".join(outcome.stories) + "\n"
        (folder / "faults.txt").write_text(text)
        print("\n".join(str(fault)[:400] for fault in outcome.faults[:10]) + "\n\n" + "\n\n".join(outcome.stories))
        print(f"kept: {folder} (faults.txt, log, data/)", flush=True)
    elif not keep:
        shutil.rmtree(folder)


if __name__ == "__main__":
    sys.exit(asyncio.run(main(arguments())))
