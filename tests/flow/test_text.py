"""Answers of every shape, as a person on Telegram sees them: each character once, in order, and nothing that Telegram refuses."""

from __future__ import annotations

import asyncio

from tests.fakes.openai import DONE, End, FakeModel, Reply, delta, says
from tests.fakes.telegram import FakeTelegram
from tests.flow.daemon import Daemon
from tests.flow.people import session_lines
from tests.flow.seen import BOTH, LIMIT, PATIENCE, check_texts, replies, shown, squeezed, texts_sent, until, whole

ANA = 42
UNPARSABLE = "Bad Request: can't parse entities: unsupported start tag"


def grows(text: str, steps: int = 30) -> Reply:
    """An answer that comes in so many deltas, slowly enough to be shown in between."""
    return says(text, deltas=steps, delay=0.02)


# ------------------------------------------------------------------------------------------------------------------- long answers

HAT = "\N{TOP HAT}"
FAMILY = "\U0001f469\u200d\U0001f469\u200d\U0001f467"
WIDE = {
    "emoji": "\U0001f600" * 5000,
    "one too many": "\U0001f600" * 2049,
    "rare characters": "\U00020000" * 3000,
    "joined": FAMILY * 700,
    "mixed": "a\U0001f600" * 2800,
    "accents": "e\u0301" * 4200,
    # The wide character stands at, before and behind the border; the text may be cut at any blank.
    **{f"hat {n}": "x" * n + "word " * 818 + HAT + "word " * 818 for n in range(9)},
    **{f"hat {n} in one word": "x" * n + HAT + "y" * 5000 for n in range(4091, 4097)},
}


@BOTH
async def test_every_character_of_a_long_answer_arrives_once(daemon: Daemon, tg: FakeTelegram, model: FakeModel, streaming: str) -> None:
    """A01, A02: whatever stands at the cut, nothing is too long by either way to count, refused, halved, dropped or doubled."""
    replies(model, {name: grows(text) for name, text in WIDE.items()})
    chats = dict(enumerate(WIDE.items(), 1))
    for chat, (name, _) in chats.items():
        tg.say(chat, name)
    for chat, (_, text) in chats.items():
        await whole(tg, chat, text)
    assert await daemon.stop() == 0
    for chat, (_, text) in chats.items():
        assert squeezed(tg.visible(chat)) == squeezed(text)
        assert len(tg.visible(chat)) == -(-len(text.strip().encode("utf-16-le")) // 2 // LIMIT)
    check_texts(tg)
    assert [call for call in texts_sent(tg) if not call.ok] == []
    assert all(text.startswith(FAMILY) for chat, (name, _) in chats.items() if name == "joined" for text in tg.visible(chat))


async def test_a_long_answer_goes_on_growing_in_a_second_message(daemon: Daemon, tg: FakeTelegram, model: FakeModel) -> None:
    """A26: past the limit the preview rolls over, while the answer is still being written; nothing is sent twice."""
    text = "".join(f"{n:05d} and so on. " for n in range(530))
    size = len(text) // 300
    deltas = [delta(text[at : at + size]) for at in range(0, len(text), size)]
    middle, late = asyncio.Event(), asyncio.Event()
    model.then(Reply([*deltas[:90], middle, *deltas[90:200], late, *deltas[200:], delta(finish="stop"), DONE]))
    tg.say(ANA, "tell")
    await whole(tg, ANA, text[: size * 90])
    middle.set()
    assert len(await whole(tg, ANA, text[: size * 200])) == 2
    late.set()
    await whole(tg, ANA, text)
    assert await daemon.stop() == 0
    assert squeezed(tg.visible(ANA)) == squeezed(text)
    assert len(tg.visible(ANA)) == len(tg.calls_of("sendMessage")) == 3
    assert all(call.ok for call in texts_sent(tg))
    check_texts(tg)


@BOTH
async def test_an_answer_without_end_is_capped(daemon: Daemon, tg: FakeTelegram, model: FakeModel, streaming: str) -> None:
    """E21: a bounded number of messages with a word about it, a bounded file, and the model is hung up on."""
    model.then(Reply(delta("Done. ") for _ in range(200_000)))
    tg.say(ANA, "are you done?")
    await until(tg, ANA, lambda seen: seen and "too long" in seen[-1])
    await asyncio.wait_for(model.asked[0].done.wait(), PATIENCE)
    assert model.asked[0].ended == "left"
    tg.say(ANA, "thanks")
    await until(tg, ANA, lambda seen: seen[-1] == "Heard: thanks")
    assert await daemon.stop() == 0
    assert len(tg.visible(ANA)) <= 30_000 // LIMIT + 2
    assert "".join(tg.visible(ANA)).count("Done.") == 5000
    assert (daemon.data / "sessions/telegram/42/main.jsonl").stat().st_size < 100_000
    answer = next(line for line in session_lines(daemon.data, ANA) if line.get("role") == "assistant")
    assert answer["interrupted"]


# ------------------------------------------------------------------------------------------------------------------------- markup

ODD = (
    "use _ as prefix",
    "a*b",
    "open ` tick",
    "[x](",
    "[x](y",
    "![",
    "5 < 6 && 7 > 3",
    "price (approx.) - 10% !",
    "**never closed",
    "~~nor this",
    "a || b || c",
    "snake_case_name and __dunder",
    "<b>not closed",
    "</i> &nosuch; <br",
    "List<int> and Map<String, List<int>>",
    "C:\\new\\table",
    "issue #1 # 2",
    "2 * 3 * 4 = 24",
    "\u202eright to left\u202c",
    "@somebody and #tag and /command",
)
LONE_FENCES = {
    "before\n```\nafter": "before\nafter",
    "```\nonly code": "only code",
    "```py\nprint(1)": "print(1)",
    "~~~\nx": "x",
    "before\n\n```": "before\n\n```",
    "```": "```",
}
"""A block of code that never closes, and what is seen of it."""


@BOTH
async def test_odd_markup_never_costs_the_answer(daemon: Daemon, tg: FakeTelegram, model: FakeModel, streaming: str) -> None:
    """A09: what is no markup is shown as it was written; what never closes is shown all the same: one message, no error, all the words."""
    chats = dict(enumerate((*ODD, *LONE_FENCES), 1))
    replies(model, {f"q{chat}": says(text, deltas=len(text)) for chat, text in chats.items()})
    for chat in chats:
        tg.say(chat, f"q{chat}")
    for chat, text in chats.items():
        await shown(tg, chat, LONE_FENCES.get(text, text))
    assert await daemon.stop() == 0
    assert [len(tg.visible(chat)) for chat in chats] == [1] * len(chats)
    assert [call for call in texts_sent(tg) if not call.ok] == []


@BOTH
async def test_escapes_and_entities_cost_no_room(daemon: Daemon, tg: FakeTelegram, model: FakeModel, streaming: str) -> None:
    """A12: a limit's worth of what other formats must escape is one message; three hundred links are all there, and all links."""
    code = "&<" * 1950
    links = [f"[link {n}](https://example.org/{n}?a=1&b=2)" for n in range(300)]
    replies(model, {"code": grows(f"```\n{code}\n```"), "links": grows(" ".join(links))})
    tg.say(1, "code")
    tg.say(2, "links")
    await shown(tg, 1, code)
    labels = "".join(f"link{n}" for n in range(300))
    await whole(tg, 2, labels)
    assert await daemon.stop() == 0
    assert squeezed(tg.visible(2)) == labels
    urls = [entity["url"] for message in tg.messages(2) for entity in message.entities if entity["type"] == "text_link"]
    assert urls == [f"https://example.org/{n}?a=1&b=2" for n in range(300)]
    assert [entity["type"] for message in tg.messages(1) for entity in message.entities] == ["pre"]
    check_texts(tg)
    assert [call for call in texts_sent(tg) if not call.ok] == []


@BOTH
async def test_a_part_that_is_refused_goes_out_plain_and_alone(daemon: Daemon, tg: FakeTelegram, model: FakeModel, streaming: str) -> None:
    """A10: of three parts the second is refused with its markup: it comes as it was written, the others as they were, each once."""
    parts = [f"**Part {n}.** " + f"word{n} " * 560 for n in range(3)]
    fault = tg.fail("*", 400, UNPARSABLE, times=None, when=lambda p: "Part 1." in str(p.get("text")) and bool(p.get("entities")))
    model.then(grows("\n\n".join(parts)))
    tg.say(ANA, "tell")
    plain = [part.strip().replace("**", "") for part in parts]
    await shown(tg, ANA, plain[0], parts[1].strip(), plain[2])
    assert await daemon.stop() == 0
    assert fault.hits
    assert tg.visible(ANA) == [plain[0], parts[1].strip(), plain[2]]
    assert [bool(message.entities) for message in tg.messages(ANA)] == [True, False, True]


@BOTH
async def test_where_markup_is_refused_the_words_are_as_the_model_wrote_them(
    daemon: Daemon, tg: FakeTelegram, model: FakeModel, streaming: str
) -> None:
    """A11: nobody sees tags, character entities or backslashes that the model never wrote."""
    said = ("**Sure!** Step 1 - done. a < b", "`code` & more_of_it!", "1. *one*\n2. [two](https://example.org)", "> quoted\n\n**end.**")
    tg.fail("*", 400, UNPARSABLE, times=None, when=lambda p: bool(p.get("entities")))
    replies(model, {text: grows(text, 8) for text in said})
    for chat, text in enumerate(said, 1):
        tg.say(chat, text)
    for chat, text in enumerate(said, 1):
        await shown(tg, chat, text)
    assert await daemon.stop() == 0
    assert [tg.visible(chat) for chat in range(1, 5)] == [[text] for text in said]


# ------------------------------------------------------------------------------------------------------------------- hardly a text

NOTHING: dict[str, list[str]] = {
    "no delta": [],
    "empty delta": [""],
    "blanks": ["", " \n\n "],
    "zero width": ["\u200b"],
    "braille blank": ["\u2800\u2800"],
    "marks around nothing": ["**", "**"],
    "bold blanks": ["** ", "**"],
    "a block without code": ["~~~\n", "~~~"],
}
"""What nobody can see, in the deltas in which it comes."""
HARDLY = ("---", "&nbsp;", "&#8203;", "***\n\n---", "` `", "[\u200b](https://example.org)", "|  |\n|--|", "---\n" * 3000)
"""Markup that shows nothing. What the model wrote is something all the same."""


@BOTH
async def test_an_answer_of_nothing_is_told_once(daemon: Daemon, tg: FakeTelegram, model: FakeModel, streaming: str) -> None:
    """A15: one short sentence, no blank message, nothing blank in the history, and the next question is answered. Where markup alone is
    left, it is shown as it was written."""
    table = {**NOTHING, **{text[:40]: [text] for text in HARDLY}}
    chats = dict(enumerate(table, 1))
    replies(model, {name: Reply([*map(delta, deltas), delta(finish="stop"), DONE]) for name, deltas in table.items()})
    for chat, name in chats.items():
        tg.say(chat, name)
        tg.say(chat, "and now?")
    for chat, name in chats.items():
        said = "The model gave an empty answer" if name in NOTHING else table[name][0]
        seen = await until(tg, chat, lambda seen: seen and seen[-1].startswith("Heard:") and seen[-1].endswith("and now?"))
        assert squeezed(said) in squeezed(seen[:-1]), seen
        assert len(seen) == 1 + -(-len(said) // LIMIT), seen
    assert await daemon.stop() == 0
    for chat, name in chats.items():
        contents = [line["content"] for line in session_lines(daemon.data, chat) if line.get("role") == "assistant"]
        assert all(squeezed(content).strip("\u200b\u2800*") for content in contents if name in NOTHING)
    check_texts(tg)


# ----------------------------------------------------------------------------------------------------- edits that change nothing


async def test_an_edit_that_had_its_effect_is_no_failure(daemon: Daemon, tg: FakeTelegram, model: FakeModel) -> None:
    """A16: the last edit arrives, its answer is lost, and its repeat is "not modified": one message, nothing sent anew."""
    fault = tg.drop("editMessageText", after=True, when=lambda p: p.get("text") == "all of it")
    model.then(Reply([delta("all "), delta("of it"), delta(""), delta(finish="stop"), DONE]))
    tg.say(ANA, "tell")
    await shown(tg, ANA, "all of it")
    tg.say(ANA, "more")
    await shown(tg, ANA, "all of it", "Heard: more")
    assert await daemon.stop() == 0
    assert fault.hits == 1
    assert any("not modified" in call.description for call in tg.calls)
    assert "refused" not in daemon.text()
    assert tg.visible(ANA) == ["all of it", "Heard: more"]
    assert len(tg.calls_of("sendMessage")) == 2


async def test_growth_that_shows_nothing_does_not_end_the_stream(daemon: Daemon, tg: FakeTelegram, model: FakeModel) -> None:
    """A17: a line break, blanks, marks that may open something: each with time for an edit. None is refused, and the rest comes."""
    dull = ("\n", "\n", "  ", "\u200b", "*", "*")
    first, rest = asyncio.Event(), asyncio.Event()
    steps = [part for one in dull for part in (delta(one), 0.15)]
    model.then(Reply([delta("Analysis"), first, *steps, delta(" continues**"), rest, delta(" to the end."), delta(finish="stop"), DONE]))
    tg.say(ANA, "tell")
    await shown(tg, ANA, "Analysis")
    first.set()
    await until(tg, ANA, lambda seen: "continues" in seen[0])
    rest.set()
    await until(tg, ANA, lambda seen: seen[0].endswith("to the end."))
    assert await daemon.stop() == 0
    assert squeezed(tg.visible(ANA)).replace("\u200b", "").replace("*", "") == "Analysiscontinuestotheend."
    assert [call.description for call in texts_sent(tg) if not call.ok] == []


async def test_a_preview_that_is_always_called_unchanged_costs_nothing(daemon: Daemon, tg: FakeTelegram, model: FakeModel) -> None:
    """A17: whatever Telegram thinks of a step in between, the stream goes on and the end is whole."""
    more = asyncio.Event()
    fault = tg.fail("editMessageText", 400, "Bad Request: message is not modified: specified new message content and reply markup are")
    model.then(Reply([delta("Analysis"), more, delta(" continues"), End.HANG]))
    tg.say(ANA, "tell")
    await tg.wait_for(lambda: fault.hits, PATIENCE, chat=ANA)
    more.set()
    await shown(tg, ANA, "Analysis continues")
    tg.say(ANA, "/stop")
    await until(tg, ANA, lambda seen: "stopped" in seen[0] and "Stopped." in seen)
    assert len(tg.calls_of("sendMessage")) == 2
