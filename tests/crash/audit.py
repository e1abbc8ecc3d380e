"""Compares what people said, what they see, what the model was asked and what is on disk, once everything is settled.

A fault is anything lost, doubled, out of order, unreadable or in the wrong place. What a kill may do to a message whose outcome nobody can
know is counted in `Audit.counts` instead:

- "placeholder left": an empty "…" whose send had its effect and was not on record yet. The answer went into another one.
- "reply doubled": a command's reply is one plain send; killed between its effect and its record, it is sent again. Not on Discord, which
  knows it by its nonce.
- "piece doubled": the same for pieces of answers, on Telegram where streaming is off.
- "pointer repeated": a command that is met again sets the same pointer again; nothing else can have happened in between.
- "unknown": a send that the network left unanswered until the daemon, asked to end, had used up its time: it is recorded as such and not
  repeated, and may be missing.
- "taken back": what /stop took back of an answer. A piece that was sent before a kill, and not on record, may be seen all the same.
- "blanked": a reply to /stop or /sessions that was on record and not out when /forget blanked the chat's words, before a kill.
- "slash lost": a slash command or a press on Discord that nobody heard. Discord tells the person, or leaves "thinking"; it keeps none.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from gateway.router import WELCOME
from tests.crash.account import ASIDE, Account, Seen
from tests.crash.damage import TORN
from tests.crash.records import Line, input_of, journal, parsed
from tests.crash.talk import LABEL, TAG, WINDOW, Said, Talk
from tests.gateway.disk_tools import open_to_others

STOPPED = "(stopped)"
OLD = "old:"
"""How the input ids of lines begin that were there before the test."""

LOST, UNANSWERED, DOUBLED, ORDER, UNREADABLE, ASIDE_, WRONG = (
    "input lost",
    "answer lost",
    "content doubled",
    "order violated",
    "unreadable",
    "set aside",
    "wrong",
)
KINDS = (LOST, UNANSWERED, DOUBLED, ORDER, UNREADABLE, ASIDE_, WRONG)
"""Kinds of faults; "wrong" is in the wrong session, with the wrong words, told to the wrong person, or open to others."""


@dataclass(frozen=True)
class Fault:
    """One thing that must not be."""

    kind: str
    text: str
    input: str = ""
    """Whose story to tell."""

    def __str__(self) -> str:
        return f"{self.kind}: {self.text}"


def squeezed(text: str) -> str:
    return "".join(text.split())


class Audit:
    """`faults` should be empty; `counts` says what was ambiguous, and how much there was."""

    def __init__(self, talk: Talk, data: Path, *, streamed: Mapping[str, bool]) -> None:
        """`streamed`: network -> whether answers grow there."""
        self.talk, self.data, self.streamed = talk, data, streamed
        self.faults: list[Fault] = []
        self.counts: Counter[str] = Counter()
        self._answers: dict[str, Line] = {}
        self._taken: dict[str, int] = {}
        """Where an answer ends of which the rest was taken back."""
        self._words: dict[str, str] = {}
        self._placed: dict[str, str] = {}
        """Input -> the message that its reply, or the first piece of its answer, goes into."""
        self._unknown: dict[str, list[tuple[int, int]]] = defaultdict(list)
        """Input -> what of its answer or reply was sent without the network's saying so."""
        heard = self._journal()
        places: dict[tuple[str, int, int], list[Said]] = defaultdict(list)
        for said in talk.said:
            if not said.passing or said.id in heard:
                places[said.place.key].append(said)
        self.accounts = {place: Account(said) for place, said in places.items()}
        for account in self.accounts.values():
            self._disk(account)
        for account in self.accounts.values():
            self._visible(account)
        self._requests()
        self._forgotten()
        for each in open_to_others(data):
            self._fault(WRONG, f"open to others: {each}")

    def verdict(self, kills: int) -> str:
        """For an assertion message."""
        shown = "\n".join(str(fault) for fault in self.faults[:20])
        return f"{len(self.faults)} faults after {kills} kills:\n{shown}\nambiguous, see tests/crash/audit.py: {dict(self.counts)}"

    def _fault(self, kind: str, text: str, input_id: str = "") -> None:
        self.faults.append(Fault(kind, text, input_id))

    def _lines(self, path: Path) -> list[Line]:
        data = path.read_bytes().removesuffix(TORN)  # one that was torn by us and not opened since
        if data and not data.endswith(b"\n"):
            self._fault(UNREADABLE, f"{path}: no newline at its end")
        lines: list[Line] = []
        for number, raw in enumerate(data.splitlines(), 1):
            try:
                lines.append(parsed(raw))
            except ValueError:
                self._fault(UNREADABLE, f"{path}:{number}: {raw[:80]!r}")
        return lines

    # -------------------------------------------------------------------------------------------------------------------- journal

    def _journal(self) -> set[str]:
        """Gives the inputs that the house heard."""
        counts: dict[str, Counter[str]] = defaultdict(Counter)
        attempts: Counter[str] = Counter()
        for path, number, record in journal(self.data):
            if not record["type"]:
                self._fault(UNREADABLE, f"{path}:{number}: {record['raw'][:80]!r}")
            counts[record["type"]][input_of(record)] += 1
            if record["type"] == "started":
                attempts[record["id"]] = max(record["n"], attempts[record["id"]])
            if record["type"] == "placed" and record["piece"] == 0:
                self._placed[record["id"]] = record["message"]
            if record["type"] == "sent" and record.get("unknown"):
                self._unsure(record["id"], record)
            if record["type"] == "finished" and record.get("reason", "") not in {"", "empty", "forgotten", "stopped"}:
                self._fault(UNANSWERED, f"finished as {record['reason']!r}", input_of(record))
        for path in (self.data / "journal").glob("*.jsonl"):
            if not path.read_bytes().endswith(b"\n"):
                self._fault(UNREADABLE, f"{path}: no newline at its end")
        accepted, refused, finished = counts["accepted"], counts["refused"], counts["finished"]
        heard = set(accepted) | set(refused)
        self.counts["inputs"] = len(self.talk.said)
        ours = {said.id for said in self.talk.said}
        for said in self.talk.said:
            if said.passing and said.id not in heard:
                self.counts["slash lost"] += 1
                continue
            took = (refused if said.stranger else accepted)[said.id]
            if took != 1:
                self._fault(LOST if not took else DOUBLED, f"accepted {took} times: {said.text!r}", said.id)
            if finished[said.id] != 1:
                self._fault(UNANSWERED if not finished[said.id] else DOUBLED, f"finished {finished[said.id]} times: {said.text!r}", said.id)
        for odd in (heard & ours) - {said.id for said in self.talk.said if said.stranger}:
            if refused[odd]:
                self._fault(LOST, "refused", odd)
        for one, times in counts["aside"].items():
            self._fault(ASIDE_, f"set aside {times} times", one)
        self.counts["edits that counted"] = counts["amended"].total()
        self.counts["attempts beyond the first"] = sum(attempts.values()) - len(attempts)
        return heard

    # ----------------------------------------------------------------------------------------------------------------------- disk

    def _disk(self, account: Account) -> None:
        folder = self.data / "sessions" / account.folder
        found = {path.stem for path in folder.glob("*.jsonl")} - {"_chat"}
        if found != set(account.books):
            last = account.said[-1].id
            self._fault(WRONG, f"{account.folder}: sessions {sorted(found)}, expected {sorted(account.books)}", last)
        cut = {said.id for index, said in enumerate(account.said) if any(cutter > index for cutter in account.cutters)}
        for name in found & set(account.books):
            self._session(account, name, self._lines(folder / f"{name}.jsonl"), cut)
        if not account.books:
            return
        moves = self._lines(folder / "_chat.jsonl")
        if moves[-1]["current"] != account.current:
            self._fault(WRONG, f"{account.folder}: is in {moves[-1]['current']}, expected {account.current}", account.said[-1].id)
        for input_id, name in account.moved.items():
            times = [move["current"] for move in moves if move.get("for") == input_id]
            if times[:1] == ["main"] and len(times) > 1 and input_id in account.made_main:
                del times[0]  # the key's first input, which made `main`, too
            if set(times) != {name}:
                self._fault(WRONG, f"{account.folder}: moved to {times}, expected {name}", input_id)
            self.counts["pointer repeated"] += max(0, len(times) - 1)

    def _session(self, account: Account, name: str, lines: list[Line], cut: set[str]) -> None:
        where = f"{account.folder}/{name}"
        book, header = account.books[name], lines[0]
        events = [(line.get("role") or line.get("type"), line.get("for", "")) for line in lines[1:]]
        if [line["seq"] for line in lines[1:]] != list(range(1, len(lines))):
            self._fault(WRONG, f"{where}: gaps in seq", book.made_by)
        if header.get("for", "") != book.made_by and not header.get("for", "").startswith(OLD):
            self._fault(WRONG, f"{where}: made by {header.get('for')}, expected {book.made_by}", book.made_by)
        if header.get("parent", {}).get("name", "") != book.parent:
            self._fault(WRONG, f"{where}: parent {header.get('parent')}, expected {book.parent}", book.made_by)
        told = [event for event in events if event[0] not in {"sent", "state"} and not event[1].startswith(OLD)]
        if told != book.events:
            at = next(
                (i for i, pair in enumerate(zip(told, book.events, strict=False)) if pair[0] != pair[1]), min(len(told), len(book.events))
            )
            text = f"{where}: event {at} is {told[at : at + 3]}, expected {book.events[at : at + 3]} ({len(told)}, {len(book.events)})"
            self._fault(WRONG, text, (book.events[at : at + 1] or told[at : at + 1] or [("", "")])[0][1])
        texts = {said.id: self.talk.texts(said) for said in account.said}
        for line in lines[1:]:
            if line.get("role") == "user" and line["for"] in texts:
                if line["content"] not in texts[line["for"]]:
                    self._fault(WRONG, f"{where}: says {line['content']!r}, expected {texts[line['for']]!r}", line["for"])
                if self._words.setdefault(line["for"], line["content"]) != line["content"]:
                    self._fault(WRONG, f"{where}: says {line['content']!r}, elsewhere {self._words[line['for']]!r}", line["for"])
            if line.get("role") != "assistant" or line["for"].startswith(OLD):
                continue
            if self._answers.setdefault(line["for"], line) != line:
                self._fault(WRONG, f"{where}: another answer than elsewhere", line["for"])
            if line.get("interrupted") and line["for"] not in cut:
                self._fault(UNANSWERED, f"{where}: nobody cut it", line["for"])
            if line["seq"] > header.get("parent", {}).get("seq", 0):
                self._sent(where, line, [each for each in lines if each.get("type") == "sent" and each["of"] == line["seq"]], cut)

    def _sent(self, where: str, answer: Line, sent: list[Line], cut: set[str]) -> None:
        """Each piece is on record once, and together they are the answer."""
        shown, at = self._shown(answer), 0
        if answer["content"] == STOPPED:
            return
        for line in sent:
            start, end = line["span"]
            if line.get("stopped"):
                self._taken[answer["for"]] = min(start, self._taken.get(answer["for"], start))
                self.counts["taken back"] += 1
                if answer["for"] not in cut:
                    self._fault(UNANSWERED, f"{where}: nobody took it back", answer["for"])
            if start < at or shown[at:start].strip():
                self._fault(WRONG, f"{where}: sent {[each['span'] for each in sent]} of {len(shown)} characters", answer["for"])
                return
            at = end
            if line.get("unknown"):
                self._unsure(answer["for"], line)
        if shown[at:].strip():
            self._fault(UNANSWERED, f"{where}: sent up to {at} of {len(shown)} characters", answer["for"])

    def _unsure(self, input_id: str, line: Line) -> None:
        self._unknown[input_id].append((line["span"][0], line["span"][1]))
        self.counts["unknown"] += 1

    def _ends(self, input_id: str, text: str) -> set[str]:
        """What may be seen of an answer: all of it, or less by what was sent without the network's saying so."""
        spans = self._unknown.get(input_id, [])
        less = text
        for start, end in sorted(spans, reverse=True):
            less = less[:start] + less[end:]
        return {squeezed(each) for each in (text, less, *(text[:start] + text[end:] for start, end in spans))}

    @staticmethod
    def _shown(answer: Line) -> str:
        return "\n\n".join(part for part in (answer["content"], answer.get("note", "")) if part)

    # -------------------------------------------------------------------------------------------------------------------- visible

    def _items(self, account: Account, texts: list[str]) -> Iterator[tuple[str, list[str]]]:
        """What the person sees, top down: (label, pieces) of each answer, ("", [text]) of everything else."""
        label, pieces = "", list[str]()
        for text in texts:
            labels = set(LABEL.findall(text))
            if len(labels) > 1:
                self._fault(WRONG, f"{account.folder}: two answers in one message: {sorted(labels)}")
            if pieces and labels == {label}:
                if pieces[-1] != text:
                    pieces.append(text)
                else:
                    self._twice(account, f"a piece of {label}", account.said[-1].id)
                continue
            if pieces:
                yield label, pieces
            label, pieces = labels.pop() if labels else "", [text]
            if not label:
                yield "", pieces
                pieces = []
        if pieces:
            yield label, pieces

    def _twice(self, account: Account, what: str, input_id: str) -> None:
        """A piece of an answer is there twice."""
        network = account.said[0].place.network
        if network == "discord" or self.streamed[network]:
            self._fault(DOUBLED, f"{account.folder}: sees {what} twice", input_id)
        else:
            self.counts["piece doubled"] += 1

    def _reply_twice(self, account: Account, times: int, input_id: str) -> None:
        network = account.said[0].place.network
        if network == "discord" and times:
            self._fault(DOUBLED, f"{account.folder}: sees a reply twice", input_id)
        self.counts["reply doubled"] += times

    def _asides(self, account: Account, texts: list[str]) -> list[str]:
        """Takes out what may stand anywhere; gives the rest."""
        found: Counter[str] = Counter()
        rest: list[str] = []
        for text in texts:
            if text == "…":
                self.counts["placeholder left"] += 1
                continue
            if text == WELCOME and any(said.stranger for said in account.said):
                found["welcome"] += 1
                continue
            kind = next((command for command, words in ASIDE.items() if words.fullmatch(text)), "")
            if kind and account.asides[kind]:
                found[kind] += 1
            else:
                rest.append(text)
        if found["welcome"] > 1:
            self._reply_twice(account, found["welcome"] - 1, account.said[0].id)
        for command, said in account.asides.items():
            inline = 0
            for one in said:
                shown = self.talk.networks[one.place.network].shown_for(one.id) if one.slash else None
                if shown and ASIDE[command].fullmatch(shown[0]):
                    inline += 1
            extra = found[command] + inline - len(said)
            self.counts["said past the queue"] += len(said)
            extra += min(max(0, -extra), sum(one.id in self._unknown for one in said))
            if extra < 0 and any(one.text == "/forget yes" for one in account.said):
                self.counts["blanked"] -= extra
            elif extra < 0:
                self._fault(UNANSWERED, f"{account.folder}: {-extra} of {len(said)} {command} without a word", said[-1].id)
            elif extra:
                self._reply_twice(account, extra, said[-1].id)
        return rest

    def _slashes(self, account: Account) -> set[str]:
        """Slash commands whose reply took the place of "thinking"."""
        done: set[str] = set()
        for seen in account.seen:
            if seen.input.slash:
                shown = self.talk.networks[seen.input.place.network].shown_for(seen.input.id)
                labels = LABEL.findall("".join(shown or []))
                if shown and self._is(seen, labels[0] if labels else "", shown):
                    done.add(seen.input.id)
                elif shown and not (self._may_miss(seen) and shown == [STOPPED]):
                    self._fault(WRONG, f"{account.folder}: sees {shown[0][:60]!r}, due is {self._say(seen)}", seen.input.id)
                    done.add(seen.input.id)
        return done

    def _patient(self, account: Account, messages: dict[str, str]) -> set[str]:
        """Commands that had to wait, and said so: their replies stand where that was said. Takes those out of `messages`."""
        done: set[str] = set()
        for seen in account.seen:
            number = self._placed.get(seen.input.id, "")
            if seen.question is None and messages.get(number, "").startswith((seen.text, seen.again or seen.text)):
                del messages[number]
                done.add(seen.input.id)
        return done

    def _visible(self, account: Account) -> None:
        """Everything that is due, in order; what is repeated directly behind itself is counted."""
        place = account.said[0].place
        messages = dict(self.talk.networks[place.network].messages(place))
        done = self._slashes(account) | self._patient(account, messages)
        items = list(self._items(account, self._asides(account, list(messages.values()))))
        seen = [each for each in account.seen if each.input.id not in done]
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
                due = [seen[at] for at, _ in ways if at < len(seen)]
                self._mismatch(account, seen, items, (label, pieces), due)
                return
            ways = nexts
        whole = {way: twice for way, twice in ways.items() if all(map(self._may_miss, seen[way[0] :]))}
        if not whole:
            due_at = seen[max(at for at, _ in ways)]
            self._fault(UNANSWERED, f"{account.folder}: does not see {self._say(due_at)}", due_at.input.id)
            return
        answers, replies = min(whole.values())
        for _ in range(answers):
            self._twice(account, "an answer", account.said[-1].id)
        self._reply_twice(account, replies, account.said[-1].id)

    def _mismatch(
        self, account: Account, seen: list[Seen], items: list[tuple[str, list[str]]], found: tuple[str, list[str]], due: list[Seen]
    ) -> None:
        """What kind of fault it is that `found` stands where something else is due."""
        label, pieces = found
        text = f"{account.folder}: sees {label} {pieces[0][:60]!r} ({len(pieces)} pieces), due is {[self._say(each) for each in due[:2]]}"
        wanted = [each for each in seen if self._is(each, label, pieces)]
        missing = [each for each in due if not any(self._is(each, *item) for item in items)]
        if not wanted:
            kind = WRONG
        elif sum(any(self._is(each, *item) for each in wanted) for item in items) > len(wanted):
            kind = DOUBLED
        else:
            kind = UNANSWERED if due and len(missing) == len(due) else ORDER
        concerned = [each.input for each in (missing or due or wanted or seen or account.seen)] or account.said
        self._fault(kind, text, concerned[0].id)

    def _say(self, seen: Seen) -> str:
        return f"{seen.input.text!r} {self._answers.get(seen.input.id) or seen.text!r}"[:300]

    def _may_miss(self, seen: Seen) -> bool:
        answer = self._answers.get(seen.input.id)
        return (
            seen.optional
            or seen.input.id in self._unknown
            or (answer is not None and (answer["content"] == STOPPED or self._taken.get(seen.input.id) == 0))
        )

    def _is(self, seen: Seen, label: str, pieces: list[str]) -> bool:
        if seen.question is None:
            return not label and pieces[0].startswith((seen.text, seen.again or seen.text))
        answer = self._answers.get(seen.input.id)
        shown = squeezed("".join(pieces))
        if answer is not None:
            taken = self._taken.get(seen.input.id)
            if taken is not None and squeezed(self._shown(answer)).startswith(shown):
                # What a life that was cut had sent, and could not record, may stand beyond where the rest was taken back.
                return len(shown) >= len(squeezed(self._shown(answer)[:taken]))
            return shown in self._ends(seen.input.id, self._shown(answer)[:taken])
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
        """Each carried the newest turns that counted then, in that session and no other, with the answers as they are on record."""
        asked_with = {said.tag: (account, said) for account in self.accounts.values() for said in account.said if said.tag}
        self.counts["requests"] = len(self.talk.model.asked)
        for asked in self.talk.model.asked:
            tags = TAG.findall(asked.words)
            if len(tags) != 1 or tags[0] not in asked_with:
                self._fault(WRONG, f"asked with {asked.words[:100]!r}")
                continue
            account, question = asked_with[tags[0]]
            before = account.before[question.tag]
            messages = [message for message in asked.messages if message.role != "system"]
            due = 2 * len(before) + 1
            if len(messages) != due and not (due > WINDOW and WINDOW - 4 <= len(messages) <= WINDOW):
                self._fault(WRONG, f"asked {question.text!r} with {len(messages)} messages, expected {due}", question.id)
                continue
            before = before[len(before) - len(messages) // 2 :]
            for number, turn in enumerate(before):
                user, assistant = str(messages[2 * number].content), str(messages[2 * number + 1].content)
                words = {self._words[turn.question.id]} if turn.question.id in self._words else self.talk.texts(turn.question)
                if not user.endswith(tuple(words)):
                    self._fault(WRONG, f"asked {question.text!r} with {user!r} at {number}, expected {words}", question.id)
                answer = self._answers.get(turn.answer)
                said = f"asked {question.text!r} with {assistant[:60]!r} at {number}"
                seen = {answer["content"], answer["content"][: self._taken.get(turn.answer)].rstrip() or STOPPED} if answer else set()
                if answer is not None and assistant not in seen:
                    self._fault(WRONG, f"{said}, expected {answer['content'][:60]!r}", question.id)
                elif answer is None and assistant != STOPPED and not self._given(turn.question.tag, squeezed(assistant), whole=False):
                    self._fault(WRONG, f"{said}, which nobody said", question.id)

    # ------------------------------------------------------------------------------------------------------------------ forgotten

    def _forgotten(self) -> None:
        tags = {tag for account in self.accounts.values() for tag in account.forgotten}
        if not tags:
            return
        for path in self.data.rglob("*"):
            if path.is_file() and (left := tags & set(TAG.findall(path.read_text(errors="replace")))):
                self._fault(WRONG, f"{path}: still tells of {sorted(left)[:5]} after /forget")
