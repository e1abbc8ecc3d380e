"""The page in a real browser: what a person sees and does. Needs a Chromium; skipped where there is none."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator

import pytest

from tests.browser.chromium import PROGRAM, Browser, Page
from tests.channels.web.house import TOKEN, House, served

pytestmark = [pytest.mark.browser, pytest.mark.skipif(PROGRAM is None, reason="no Chromium here: apt-get install chromium")]

TEXTS = "[...document.querySelectorAll('.message .body')].map((body) => body.innerText)"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    found = Browser()
    yield found
    found.close()


@pytest.fixture
async def page(browser: Browser) -> AsyncIterator[Page]:
    async with browser.tab() as found:
        yield found


async def enter(page: Page, url: str) -> None:
    """Come in by the link with the token."""
    await page.open(f"{url}/#token={TOKEN}")
    await page.until("document.querySelector('#link')?.dataset.state === 'on' && !document.querySelector('#empty').hidden")


async def write(page: Page, text: str) -> None:
    await page.run("document.querySelector('#text').focus()")
    await page.type(text)
    await page.key("Enter")


async def shows(page: Page, *texts: str) -> None:
    """Exactly these messages, from the top, and that it stays so when all is quiet."""
    await page.until(f"JSON.stringify({TEXTS}) === {json.dumps(json.dumps(texts, ensure_ascii=False, separators=(',', ':')))}")


async def click(page: Page, selector: str, words: str = "") -> None:
    found = f"[...document.querySelectorAll({json.dumps(selector)})].find((e) => e.innerText.includes({json.dumps(words)}))"
    await page.until(f"!!{found}")
    await page.run(f"{found}.click()")


async def test_a_conversation_and_its_reload(page: Page) -> None:
    """Signed in by a link that leaves no token behind; Enter sends, Shift+Enter does not; the answer grows; a reload shows each thing once,
    before the history has an answer and after."""
    house = House()
    house.step = 0.02
    house.answers["Tell me"] = "Once **upon** a time. " * 20
    async with served(house) as url:
        await enter(page, url)
        assert await page.run("location.href") == f"{url}/"
        assert TOKEN not in str(await page.run("document.cookie + document.documentElement.outerHTML"))
        await page.type("Hello")
        await page.key("Enter", shift=True)
        await page.type("there")
        await page.key("Enter")
        await shows(page, "Hello\nthere", "You said: Hello\nthere")
        await write(page, "Tell me")
        await page.until(f"{TEXTS}.length === 4 && {TEXTS}[3].length > 30")
        await page.run("location.reload()")
        story = ("Once upon a time. " * 20).strip()
        await shows(page, "Hello\nthere", "You said: Hello\nthere", "Tell me", story)
        await page.until("state.lines.length === 4")
        await shows(page, "Hello\nthere", "You said: Hello\nthere", "Tell me", story)
        await page.run("location.reload()")
        await page.until("typeof state === 'object' && state.ready && state.seen !== ''")
        await shows(page, "Hello\nthere", "You said: Hello\nthere", "Tell me", story)
        assert await page.run("document.querySelectorAll('.message strong').length") == 20


async def test_nothing_that_is_said_runs_or_loads(page: Page) -> None:
    """Hostile Markdown, texts and session titles are text on the page: nothing runs, nothing is fetched, the policy has nothing to stop."""
    hostile = "<img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script>"
    house = House()
    house.answers["go"] = (
        f"{hostile} [a](javascript:document.title='owned') ![x](https://evil.example/x.png) "
        "<svg onload=alert(1)> [ok](https://ok.example/) <a href='//evil.example'>b</a>"
    )
    async with served(house) as url:
        await enter(page, url)
        await page.until("document.title === 'Parlour'")
        page.complaints.clear()
        await write(page, "go")
        await page.until("!!document.querySelector('.bot a[href=\"https://ok.example/\"]')")
        await write(page, hostile)
        await write(page, f"/fork {hostile}")
        await page.until("document.querySelector('#where').innerText.includes('onerror')")
        await page.until("state.lines.length === 4")
        assert await page.run("document.title") == "Parlour"
        assert await page.run("document.querySelectorAll('#log img, #log script, #log svg, #sessions img').length") == 0
        assert await page.run("[...document.querySelectorAll('#log a')].map((a) => a.href + a.rel + a.target)") == [
            "https://evil.example/x.pngnoopener noreferrer nofollow_blank",
            "https://ok.example/noopener noreferrer nofollow_blank",
        ]
        assert page.complaints == []
        assert [address for address in page.requested if not address.startswith((url, "about:"))] == []
        with pytest.raises(AssertionError, match="TrustedHTML"):
            await page.run("document.body.innerHTML = '<b>x</b>'")


async def test_forks_and_the_buttons(page: Page) -> None:
    """Fork asks for a name and makes a branch in the tree; a click there switches; the buttons do as they say."""
    house = House()
    async with served(house) as url:
        await enter(page, url)
        await write(page, "one")
        await shows(page, "one", "You said: one")
        await click(page, "#fork")
        await page.until("document.querySelector('#name').open && document.activeElement.id === 'fork-name'")
        await page.type("West")
        await page.key("Enter")
        await shows(page, "one", "You said: one", "/fork West", "This is now West, a fork of main.")
        await page.until("document.querySelector('#sessions ul ul button[aria-current]')?.innerText === 'West'")
        await write(page, "two")
        await shows(page, "one", "You said: one", "/fork West", "This is now West, a fork of main.", "two", "You said: two")
        await click(page, "#sessions button", "Main")
        await shows(page, "one", "You said: one", "/switch main", "This is now main.")
        assert await page.run("document.querySelector('#where').innerText") == "Main"
        await click(page, "#sessions button", "West")
        await shows(page, "one", "You said: one", "two", "You said: two", "/switch west", "This is now west.")
        await click(page, "[data-say='/undo']")
        await shows(page, "one", "You said: one", "/switch west", "This is now west.", "/undo", "Done: /undo")
        await click(page, "[data-say='/retry']")
        await page.until(f"{TEXTS}.includes('Another answer.') && !{TEXTS}.includes('You said: one')")
        await page.until("state.lines.length === 2")
        await shows(page, "one", "/switch west", "This is now west.", "/undo", "Done: /undo", "/retry", "Another answer.")
        await click(page, "[data-say='/reset']")
        await shows(page, "/reset", "Done: /reset")
        await page.until("document.querySelectorAll('#sessions > ul > li').length === 2")
        await write(page, "three")
        await page.until("state.lines.length === 2")
        await click(page, "#fork")
        await page.type("Last")
        await page.key("Enter")
        await click(page, ".buttons button", "Back to chat-2")
        await page.until(f"{TEXTS}.at(-1) === 'This is now chat-2.'")
        assert page.complaints == [text for text in page.complaints if "401" in text]


async def test_an_empty_page(page: Page) -> None:
    """Where nothing is said there is nothing to take back, to repeat or to copy; the page says how to begin, and that the chat is this
    browser's own. A command's refusal is a note there. After the only message is taken back it is so again."""
    active = "[...document.querySelectorAll('.tools button:enabled')].map((button) => button.innerText).join(' ')"
    async with served(House()) as url:
        await enter(page, url)
        assert await page.run(active) == "Reset"
        assert "Each browser has a chat of its own" in str(await page.run("document.querySelector('#empty').innerText"))
        await write(page, "/retry")
        await write(page, "/retry")
        await shows(page, *["/retry", "There is nothing to ask again."] * 2)
        assert await page.run("document.querySelectorAll('.bot.note').length") == 2
        await page.until("!document.querySelector('#empty').hidden")
        await write(page, "one")
        await page.until(f"document.querySelector('#empty').hidden && {active} === 'Stop Retry Undo Fork Reset'")
        await click(page, "[data-say='/undo']")
        await page.until(f"!document.querySelector('#empty').hidden && {active} === 'Reset'")
        await shows(page, *["/retry", "There is nothing to ask again."] * 2, "/undo", "Done: /undo")


async def test_why_an_answer_was_cut_is_not_in_its_words(page: Page) -> None:
    """What the house says under an answer stands apart from it, also where a block of code was cut."""
    house = House()
    house.answers["code"] = "Look:\n\n```\nx = 1"
    house.notes[house.answers["code"]] = "(stopped)"
    async with served(house) as url:
        await enter(page, url)
        await write(page, "code")
        await page.until("document.querySelector('.bot .cut')?.innerText === '(stopped)'")
        await shows(page, "code", "Look:\n\nx = 1\nCopy")


@pytest.mark.parametrize("width", [1100, 800, 700])
async def test_messages_stand_above_the_message_box(page: Page, width: int) -> None:
    """Both have the same edges, also when the scrollbar takes room."""
    house = House()
    house.answers["long"] = "word\n\n" * 100
    edges = "['#log', '.box'].map((name) => document.querySelector(name).getBoundingClientRect()).map((r) => [r.left, r.right].join())"
    async with served(house) as url:
        await page.size(width, 700)
        await enter(page, url)
        assert len(set(await page.run(edges))) == 1  # type: ignore[call-overload]
        await write(page, "long")
        await page.until("document.querySelector('#scroll').offsetWidth > document.querySelector('#scroll').clientWidth")
        assert len(set(await page.run(edges))) == 1  # type: ignore[call-overload]


async def test_a_restart_of_the_daemon_loses_and_doubles_nothing(page: Page) -> None:
    """The page says that it is not connected, keeps what is typed meanwhile, comes back by itself, and shows each message once."""
    house = House()
    async with served(house) as url:
        await enter(page, url)
        await write(page, "one")
        await shows(page, "one", "You said: one")
    port = int(url.rpartition(":")[2])
    await page.until("document.querySelector('#link').dataset.state !== 'on'")
    await write(page, "two")
    await page.until("!!document.querySelector('.message.sending')")
    async with served(house, port=port):
        await page.until("document.querySelector('#link').dataset.state === 'on'", timeout=25)
        await shows(page, "one", "You said: one", "two", "You said: two")
        await page.until("state.lines.length === 4")
        await shows(page, "one", "You said: one", "two", "You said: two")
    assert [inbound.text for inbound in house.seen] == ["one", "two"]


async def test_what_cannot_be_written_down_can_be_sent_again(page: Page) -> None:
    """A message that the daemon could not take says so, and goes in with its first id when asked."""
    house = House()
    async with served(house) as url:
        await enter(page, url)
        house.fault = OSError(28, "full")
        await write(page, "keep me")
        await page.until("!!document.querySelector('.message.failed')", timeout=20)
        assert "could not be written" in str(await page.run("document.querySelector('.message.failed').innerText"))
        house.fault = None
        await click(page, ".message.failed button", "Send again")
        await shows(page, "keep me", "You said: keep me")


async def test_a_signed_out_page_asks_for_the_token(page: Page) -> None:
    """A wrong token is told; the form takes the right one; a page whose cookie went comes back to the form."""
    async with served(House()) as url:
        await page.open(f"{url}/#token=wrong")
        await page.until("document.querySelector('.said')?.innerText.includes('not the right one')")
        await page.run("document.querySelector('#token').focus()")
        await page.type(TOKEN)
        await page.key("Enter")
        await page.until("document.querySelector('#link')?.dataset.state === 'on'")
        await page.call("Network.clearBrowserCookies")
        await write(page, "hello")
        await page.until("!!document.querySelector('form[action=\"/login\"]')")


async def test_a_phone(page: Page) -> None:
    """On a narrow screen nothing is wider than it, the sessions come out of the side, and Escape puts them back."""
    house = House()
    house.answers["wide"] = "```\n" + "x" * 500 + "\n```\n\n" + "y" * 400 + "\n\n|a|b|\n|-|-|\n|" + "z" * 300 + "|1|"
    async with served(house) as url:
        await page.size(360, 740)
        await enter(page, url)
        await write(page, "wide")
        await page.until("!!document.querySelector('.bot table')")
        assert await page.run("document.documentElement.scrollWidth") == 360
        assert await page.run("document.querySelector('#scroll').scrollWidth <= 360")
        assert await page.run("getComputedStyle(document.querySelector('aside')).visibility") == "hidden"
        await click(page, "#open-side")
        await page.until("getComputedStyle(document.querySelector('aside')).visibility === 'visible'")
        await page.key("Escape")
        await page.until("getComputedStyle(document.querySelector('aside')).visibility === 'hidden'")


async def test_keyboard_and_screen_reader(page: Page) -> None:
    """Everything that can be pressed has a name; the answer is read out once, when it is done; commands complete by arrow keys."""
    house = House()
    house.step = 0.01
    house.answers["Tell me"] = "A long answer. " * 20
    async with served(house) as url:
        await enter(page, url)
        await page.run("new MutationObserver(() => { window.said = (window.said || 0) + 1; }).observe($('announce'), { childList: true })")
        await write(page, "Tell me")
        await page.until("$('announce').textContent.startsWith('A long answer.')")
        assert await page.run("window.said") == 1
        tree = (await page.call("Accessibility.getFullAXTree"))["nodes"]
        assert isinstance(tree, list)
        nameless = [
            node
            for node in tree
            if node.get("role", {}).get("value") in ("button", "textbox", "link") and not node.get("name", {}).get("value")
        ]
        assert nameless == []
        await page.run("document.querySelector('#text').focus()")
        await page.type("/fo")
        await page.until("document.querySelectorAll('#hints li').length === 2")
        await page.key("ArrowDown")
        await page.key("ArrowDown")
        await page.key("Enter")
        assert await page.run("document.querySelector('#text').value") == "/forget "


async def test_what_is_said_elsewhere_is_here_at_once(page: Page) -> None:
    """Another tab of the same browser is the same chat: what is said there is shown here, once."""
    house = House()
    async with served(house) as url:
        await enter(page, url)
        await page.run(
            "fetch('/api/say', {method: 'POST', headers: {'Content-Type': 'application/json'}, "
            "body: JSON.stringify({id: 'another-tab-0001', text: 'from there'})}).then((answer) => answer.status)"
        )
        await shows(page, "from there", "You said: from there")
        await page.until("state.lines.length === 2")
        await shows(page, "from there", "You said: from there")
