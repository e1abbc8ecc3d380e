"""The beginning of a file that lies with a network, over the connections of its channel.

What it says about its own length is not believed: no more is read than is asked for. Nothing is unpacked, no redirect is followed, and no
credentials are sent that are not in the address. Called by the channels' `fetch`, which decide which addresses may be asked.
"""

from __future__ import annotations

import aiohttp
from yarl import URL

from channels.base import ChannelError, NotSent, Refused, Retry, Unknown

CONNECT_SECONDS = 10.0
STALL_SECONDS = 10.0
"""Without a byte for so long, it is given up."""
TOTAL_SECONDS = 30.0
"""However slowly the bytes come."""


async def download(connector: aiohttp.BaseConnector, url: URL, most: int, *, proxy: str = "", stall: float = STALL_SECONDS) -> bytes:
    """At most the first `most` bytes. Raises ChannelError, whose words and causes hold no address: there may be a token in it."""
    timeout = aiohttp.ClientTimeout(total=TOTAL_SECONDS, connect=CONNECT_SECONDS, sock_read=stall)
    headers = {"User-Agent": "parlour", "Accept-Encoding": "identity"}
    fault: ChannelError
    try:
        async with (
            # A session of its own: the channel's unpacks what it is sent, and a few bytes can be made to unpack to very many.
            aiohttp.ClientSession(
                connector=connector,
                connector_owner=False,
                auto_decompress=False,
                trust_env=False,
                cookie_jar=aiohttp.DummyCookieJar(),
            ) as session,
            session.get(url, headers=headers, timeout=timeout, proxy=proxy or None, allow_redirects=False) as response,
        ):
            if response.status == 200 and response.headers.get("Content-Encoding", "identity") == "identity":
                data = bytearray()
                while len(data) < most and (chunk := await response.content.read(most - len(data))):
                    data += chunk
                return bytes(data)
            fault = _refusal(response)
    except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError, aiohttp.ClientHttpProxyError):
        fault = NotSent("cannot reach the server of the file")
    except TimeoutError:
        fault = Unknown("the file does not come in time")
    except (aiohttp.InvalidURL, ValueError):
        fault = Refused("the file's address is not valid")
    except (aiohttp.ClientError, OSError) as error:
        fault = Unknown(f"the connection broke ({type(error).__name__})")
    raise fault  # outside of the handlers: a fault that is logged with its context shows no address


def _refusal(response: aiohttp.ClientResponse) -> ChannelError:
    if response.status == 429:
        said = response.headers.get("Retry-After", "")
        return Retry(float(said) if said.isdecimal() else 5.0)
    if response.status >= 500:
        return Unknown(f"the server of the file answered {response.status}")
    return Refused(f"the server of the file answered {response.status}")
