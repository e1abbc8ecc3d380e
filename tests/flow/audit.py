"""Compares what people said, what they see, what the model was asked and what is on disk, once everything is settled.

A fault is anything lost, doubled, out of order, unreadable or in the wrong place. What a kill may do to a message whose outcome nobody can
know is counted in `Audit.counts` instead, and bounded by the number of kills:

- "placeholder left": an empty "…" whose send had its effect and was not on record yet. The answer went into another one.
- "reply doubled": a command's reply is one plain send; killed between its effect and its record, it is sent again, once a kill.
- "piece doubled": the same for pieces of answers, where streaming is off. Where it is on, this is a fault.
- "pointer repeated": a command that is met again sets the same pointer again; nothing else can have happened in between.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.flow.account import Account, Seen
from tests.flow.talk import LABEL, TAG, Said, Talk
from tests.gateway.disk_tools import open_to_others

Line = dict[str, Any]

NOW = ("Stopped.", "Nothing is running.")
"""Replies to /stop, which passes the queue: they may stand anywhere."""
STOPPED = "(stopped)"
OLD = "old:"
"""How the input ids of lines begin that were there before the test."""


def squeezed(text: str) -> str:
    return "".join(text.split())


def unfinished(data: Path) -> set[str]:
    """Inputs that the journal has and has not seen the end of."""
    accepted: set[str] = set()
    finished: set[str] = set()
    for path in (data / "journal").glob("*.jsonl"):
        for line in path.read_bytes().split(b"\n")[:-1]:  # what has no newline yet is being written
            record = json.loads(line)
            if record["type"] == "accepted":
                accepted.add(record["inbound"]["id"])
            elif record["type"] == "finished":
                finished.add(record["id"])
    return accepted - finished


class Audit:
    """`faults` should be empty; `counts` says what was ambiguous, and how much there was."""

    def __init__(self, talk: Talk, data: Path, *, streamed: bool) -> None:
        self.talk, self.data, self.streamed = talk, data, streamed
        self.faults: list[str] = []
        self.counts: Counter[str] = Counter()
        places: dict[tuple[int, int], list[Said]] = defaultdict(list)
        for said in talk.said:
            places[said.place.chat, said.place.thread].append(said)
        self.accounts = {place: Account(said) for place, said in places.items()}
        self._answers: dict[str, Line] = {}
        self._words: dict[str, str] = {}
        self._journal()
        for account in self.accounts.values():
            self._disk(account)
        for account in self.accounts.values():
            self._visible(account)
        self._requests()
        self._forgotten()
        self.faults += [f"open to others: {each}" for each in open_to_others(data)]

    def verdict(self, kills: int) -> str:
        """For an assertion message."""
        shown = "\n".join(self.faults[:20])
        return f"{len(self.faults)} faults after {kills} kills:\n{shown}\nambiguous, see tests/flow/audit.py: {dict(self.counts)}"

    def _fault(self, text: str) -> None:
        self.faults.append(text)

    def _lines(self, path: Path) -> list[Line]:
        data = path.read_bytes()
        if data and not data.endswith(b"\n"):
            self._fault(f"{path}: no newline at its end")
        lines: list[Line] = []
        for number, raw in enumerate(data.splitlines(), 1):
            try:
                lines.append(json.loads(raw))
            except ValueError:
                self._fault(f"{path}:{number}: unreadable: {raw[:80]!r}")
        return lines

    # -------------------------------------------------------------------------------------------------------------------- journal

    def _journal(self) -> None:
        records = [line for path in sorted((self.data / "journal").glob("*.jsonl")) for line in self._lines(path)]
        accepted = Counter(record["inbound"]["id"] for record in records if record["type"] == "accepted")
        finished = Counter(record["id"] for record in records if record["type"] == "finished")
        self.counts["inputs"] = len(self.talk.said)
        for said in self.talk.said:
            if accepted[said.id] != 1:
                self._fault(f"accepted {accepted[said.id]} times: {said}")
            if finished[said.id] != 1:
                self._fault(f"finished {finished[said.id]} times: {said}")
        if refused := [record for record in records if record["type"] == "refused"]:
            self._fault(f"refused: {refused[:3]}")
        self.counts["edits that counted"] = sum(record["type"] == "amended" for record in records)
        started = Counter(record["id"] for record in records if record["type"] == "started")
        self.counts["attempts beyond the first"] = sum(count - 1 for count in started.values())

    # ----------------------------------------------------------------------------------------------------------------------- disk

    def _disk(self, account: Account) -> None:
        folder = self.data / "sessions" / self.talk.network / account.folder
        found = {path.stem for path in folder.glob("*.jsonl")} - {"_chat"}
        if found != set(account.books):
            self._fault(f"{account.folder}: sessions {sorted(found)}, expected {sorted(account.books)}")
        cut = {said.id for index, said in enumerate(account.said) if any(cutter > index for cutter in account.cutters)}
        for name in found & set(account.books):
            self._session(account, name, self._lines(folder / f"{name}.jsonl"), cut)
        if not account.books:
            return
        moves = self._lines(folder / "_chat.jsonl")
        if moves[-1]["current"] != account.current:
            self._fault(f"{account.folder}: is in {moves[-1]['current']}, expected {account.current}")
        for input_id, name in account.moved.items():
            times = [move["current"] for move in moves if move.get("for") == input_id]
            if times[:1] == ["main"] and len(times) > 1 and account.books["main"].made_by == input_id:
                del times[0]  # the key's first input, which made `main`, too
            if set(times) != {name}:
                self._fault(f"{account.folder}: {input_id} moved to {times}, expected {name}")
            self.counts["pointer repeated"] += max(0, len(times) - 1)

    def _session(self, account: Account, name: str, lines: list[Line], cut: set[str]) -> None:
        where = f"{account.folder}/{name}"
        book, header = account.books[name], lines[0]
        events = [(line.get("role") or line.get("type"), line.get("for", "")) for line in lines[1:]]
        if [line["seq"] for line in lines[1:]] != list(range(1, len(lines))):
            self._fault(f"{where}: gaps in seq")
        if header.get("for", "") != book.made_by and not header.get("for", "").startswith(OLD):
            self._fault(f"{where}: made by {header.get('for')}, expected {book.made_by}")
        if header.get("parent", {}).get("name", "") != book.parent:
            self._fault(f"{where}: parent {header.get('parent')}, expected {book.parent}")
        told = [event for event in events if event[0] not in {"sent", "state"} and not event[1].startswith(OLD)]
        if told != book.events:
            at = next(
                (i for i, pair in enumerate(zip(told, book.events, strict=False)) if pair[0] != pair[1]), min(len(told), len(book.events))
            )
            self._fault(
                f"{where}: event {at} is {told[at : at + 3]}, expected {book.events[at : at + 3]} ({len(told)}, {len(book.events)})"
            )
        texts = {said.id: self.talk.texts(said) for said in account.said}
        for line in lines[1:]:
            if line.get("role") == "user" and line["for"] in texts:
                if line["content"] not in texts[line["for"]]:
                    self._fault(f"{where}: says {line['content']!r}, expected {texts[line['for']]!r}")
                if self._words.setdefault(line["for"], line["content"]) != line["content"]:
                    self._fault(f"{where}: says {line['content']!r}, elsewhere {self._words[line['for']]!r}")
            if line.get("role") != "assistant" or line["for"].startswith(OLD):
                continue
            if self._answers.setdefault(line["for"], line) != line:
                self._fault(f"{where}: another answer to {line['for']} than elsewhere")
            if line.get("interrupted") and line["for"] not in cut:
                self._fault(f"{where}: nobody cut {line['for']}")
            if line["seq"] > header.get("parent", {}).get("seq", 0):
                self._sent(where, line, [each for each in lines if each.get("type") == "sent" and each["of"] == line["seq"]])

    def _sent(self, where: str, answer: Line, sent: list[Line]) -> None:
        """Each piece is on record once, and together they are the answer."""
        shown, at = self._shown(answer), 0
        if answer["content"] == STOPPED:
            return
        for line in sent:
            start, end = line["span"]
            if start < at or shown[at:start].strip():
                self._fault(f"{where}: sent {[each['span'] for each in sent]} of {len(shown)} characters")
                return
            at = end
        if shown[at:].strip():
            self._fault(f"{where}: sent up to {at} of {len(shown)} characters, {answer['for']}")

    @staticmethod
    def _shown(answer: Line) -> str:
        return "\n\n".join(part for part in (answer["content"], answer.get("note", "")) if part)

    # -------------------------------------------------------------------------------------------------------------------- visible

    def _items(self, account: Account) -> Iterator[tuple[str, list[str]]]:
        """What the person sees, top down: (label, pieces) of each answer, ("", [text]) of everything else."""
        place = account.said[0].place
        label, pieces = "", list[str]()
        for text in self.talk.tg.visible(place.chat, place.thread if place.chat < 0 else None):
            if text == "…":
                self.counts["placeholder left"] += 1
                continue
            if text in NOW:
                self.counts["stop replies"] += 1
                continue
            labels = set(LABEL.findall(text))
            if len(labels) > 1:
                self._fault(f"{account.folder}: two answers in one message: {sorted(labels)}")
            if pieces and labels == {label}:
                if pieces[-1] != text:
                    pieces.append(text)
                    continue
                self.counts["piece doubled"] += 1
                if self.streamed:
                    self._fault(f"{account.folder}: sees a piece of {label} twice")
                continue
            if pieces:
                yield label, pieces
            label, pieces = labels.pop() if labels else "", [text]
            if not label:
                yield "", pieces
                pieces = []
        if pieces:
            yield label, pieces

    def _visible(self, account: Account) -> None:
        """Everything that is due, in order; what is repeated directly behind itself is counted."""
        stops = self.counts["stop replies"]
        items, seen = list(self._items(account)), account.seen
        # (place of the next one in `seen`, place of the one before) -> the least number of (answers, replies) seen twice
        ways: dict[tuple[int, int], tuple[int, int]] = {(0, -1): (0, 0)}
        for label, pieces in items:
            nexts: dict[tuple[int, int], tuple[int, int]] = {}
            for (at, last), (answers, replies) in ways.items():
                for to in range(at, len(seen)):
                    if self._is(seen[to], label, pieces):
                        nexts[to + 1, to] = min((answers, replies), nexts.get((to + 1, to), (answers, replies)))
                    if not self._may_miss(seen[to]):
                        break
                if last >= 0 and self._is(seen[last], label, pieces):
                    twice = (answers + bool(label), replies + (not label))
                    nexts[at, last] = min(twice, nexts.get((at, last), twice))
            if not nexts:
                due = [self._say(seen[at]) for at, _ in ways if at < len(seen)]
                self._fault(f"{account.folder}: sees {label} {pieces[0][:60]!r} ({len(pieces)} pieces), due is {due[:2]}")
                return
            ways = nexts
        whole = {way: twice for way, twice in ways.items() if all(map(self._may_miss, seen[way[0] :]))}
        if not whole:
            self._fault(f"{account.folder}: does not see {self._say(seen[max(at for at, _ in ways)])}")
            return
        answers, replies = min(whole.values())
        if self.streamed and answers:
            self._fault(f"{account.folder}: sees {answers} answers twice")
        self.counts["piece doubled"] += answers
        extra = self.counts["stop replies"] - stops - account.stops
        if extra < 0:
            self._fault(f"{account.folder}: {-extra} of {account.stops} /stop without a word")
        self.counts["reply doubled"] += replies + max(0, extra)

    def _say(self, seen: Seen) -> str:
        return f"{seen.input.text!r} {self._answers.get(seen.input.id) or seen.text!r}"[:300]

    def _may_miss(self, seen: Seen) -> bool:
        answer = self._answers.get(seen.input.id)
        return seen.optional or (answer is not None and answer["content"] == STOPPED)

    def _is(self, seen: Seen, label: str, pieces: list[str]) -> bool:
        if seen.question is None:
            return not label and pieces[0].startswith(seen.text)
        answer = self._answers.get(seen.input.id)
        shown = squeezed("".join(pieces))
        if answer is not None:
            return shown == squeezed(self._shown(answer))
        if shown == STOPPED:
            return seen.optional
        # Deleted for good: it was one of those that the model gave.
        return label.startswith(f"{seen.question.tag}.") and self._given(
            seen.question.tag, shown.removesuffix(STOPPED), whole=STOPPED not in shown
        )

    def _given(self, tag: str, text: str, *, whole: bool) -> bool:
        given = map(squeezed, self.talk.given[tag])
        return any(each == text if whole else each.startswith(text) for each in given)

    # ------------------------------------------------------------------------------------------------------------------- requests

    def _requests(self) -> None:
        """Each carried the turns that counted then, in that session and no other, with the answers as they are on record."""
        asked_with = {said.tag: (account, said) for account in self.accounts.values() for said in account.said if said.tag}
        self.counts["requests"] = len(self.talk.model.asked)
        for asked in self.talk.model.asked:
            tags = TAG.findall(asked.words)
            if len(tags) != 1 or tags[0] not in asked_with:
                self._fault(f"asked with {asked.words[:100]!r}")
                continue
            account, question = asked_with[tags[0]]
            before = account.before[question.tag]
            messages = [message for message in asked.messages if message.role != "system"]
            if len(messages) != 2 * len(before) + 1:
                self._fault(f"asked {question.text!r} with {len(messages)} messages, expected {2 * len(before) + 1}")
                continue
            for number, turn in enumerate(before):
                user, assistant = str(messages[2 * number].content), str(messages[2 * number + 1].content)
                words = {self._words[turn.question.id]} if turn.question.id in self._words else self.talk.texts(turn.question)
                if not user.endswith(tuple(words)):
                    self._fault(f"asked {question.text!r} with {user!r} at {number}, expected {words}")
                answer = self._answers.get(turn.answer)
                if answer is not None and assistant != answer["content"]:
                    self._fault(f"asked {question.text!r} with {assistant[:60]!r} at {number}, expected {answer['content'][:60]!r}")
                elif answer is None and assistant != STOPPED and not self._given(turn.question.tag, squeezed(assistant), whole=False):
                    self._fault(f"asked {question.text!r} with {assistant[:60]!r} at {number}, which nobody said")

    # ------------------------------------------------------------------------------------------------------------------ forgotten

    def _forgotten(self) -> None:
        tags = {tag for account in self.accounts.values() for tag in account.forgotten}
        if not tags:
            return
        for path in self.data.rglob("*"):
            if path.is_file() and (left := tags & set(TAG.findall(path.read_text(errors="replace")))):
                self._fault(f"{path}: still tells of {sorted(left)[:5]} after /forget")
