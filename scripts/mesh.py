# ruff: noqa: UP006, UP032, UP035, UP041  # runs on the hosts' own Python, from 3.6
"""Whether this host reaches others on the ports that Ray and the collectives use.

Runs on every host at the same time, without other files, by any Python from 3.6. It listens for a
few seconds on its own ports that are free, and connects to those of the hosts named in M_TARGETS;
through each connection to such a listener go 64 KiB, which a smaller packet size on the way would
stop. On a port that is in use, the connection alone counts. No other load, nothing is written.

M_NAME this host  M_IP its address  M_NONCE of this check  M_PORTS own ports, one a line
M_TARGETS "NAME IP PORT PORT! ..." a line; PORT! is known to be in use: connect, nothing more
M_SOURCES hosts that connect to this one, one a line  M_SECONDS limit of the whole check

Output: `= busy PORT`, `= mesh NAME PORT RESULT`, `= complete yes`. Results: ok, refused, silent (a
connection without an answer: fine where the other host says that the port is in use), timed out,
data lost, or the system's reason.
"""

import asyncio
import contextlib
import errno
import os
import socket
import time
from typing import Dict, List, Set, Tuple

NAME, IP, NONCE = (os.environ[key] for key in ("M_NAME", "M_IP", "M_NONCE"))
PORTS = [int(word) for word in os.environ["M_PORTS"].split()]
TARGETS = [line.split() for line in os.environ["M_TARGETS"].splitlines() if line]
SOURCES = os.environ["M_SOURCES"].split()
SECONDS = float(os.environ["M_SECONDS"])
DEADLINE = time.monotonic() + SECONDS
# One attempt: two lost packets (retried by the kernel after 1 and 3 s) do not fail it.
CONNECT_SECONDS = 3.5
LOAD = b"x" * 65536
FAMILY = socket.AF_INET6 if ":" in IP else socket.AF_INET

# (source, port) whose connection arrived whole; results by (target, port).
heard: Set[Tuple[str, int]] = set()
results: Dict[Tuple[str, int], str] = {}


async def serve(port: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer a greeting `NONCE SOURCE` and 64 KiB with this host's name."""
    with contextlib.suppress(OSError, ValueError, asyncio.IncompleteReadError):
        nonce, source = (await reader.readline()).decode().split()
        if nonce == NONCE:
            writer.write(b"hello %s\n" % NAME.encode())
            await reader.readexactly(len(LOAD))
            writer.write(b"whole %s\n" % NAME.encode())
            await writer.drain()
            heard.add((source, port))
            # The other side closes first: its port, not this one, then waits in TIME_WAIT.
            await reader.read()
    writer.close()


async def listen() -> List[Tuple[int, asyncio.AbstractServer]]:
    """Listeners on the own ports that are free; prints the others."""
    servers = []
    for port in PORTS:
        sock = socket.socket(FAMILY, socket.SOCK_STREAM)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            sock.bind((IP, port))
            sock.listen(1024)
        except OSError as error:
            sock.close()
            if error.errno == errno.EADDRINUSE:
                print("= busy", port)
            else:
                print("? busy", port, os.strerror(error.errno or 0))
            continue
        sock.setblocking(False)
        handler = lambda reader, writer, port=port: serve(port, reader, writer)  # noqa: E731
        servers.append((port, await asyncio.start_server(handler, sock=sock)))
    return servers


def left() -> float:
    """Seconds until the deadline; at least one, so that a late start is not a failure by itself."""
    return max(DEADLINE - time.monotonic(), 1)


async def attempt(name: str, address: str, port: int, in_use: bool) -> str:
    """One connection and its result."""
    step, result = "timed out", ""
    writer = None
    try:
        coroutine = asyncio.open_connection(address, port)
        reader, writer = await asyncio.wait_for(coroutine, min(CONNECT_SECONDS, left()))
        if in_use:
            return "ok"
        step = "silent"
        writer.write("{} {}\n".format(NONCE, NAME).encode())
        words = await answer(reader)
        if words[:1] != ["hello"]:
            result = step
        elif words[1:] != [name]:
            result = "answered by " + " ".join(words[1:])
        else:
            step = "data lost"
            writer.write(LOAD)
            words = await answer(reader)
            result = "ok" if words[:1] == ["whole"] else step
    except asyncio.TimeoutError:
        result = step
    except ConnectionRefusedError:
        result = "refused"
    except (OSError, ValueError) as error:
        number = getattr(error, "errno", None)
        result = os.strerror(number) if step == "timed out" and number else step
    finally:
        if writer is not None:
            writer.close()
    return result


async def answer(reader: asyncio.StreamReader) -> List[str]:
    """The words of one line, before the deadline."""
    line = await asyncio.wait_for(reader.readline(), left())
    return line.decode(errors="replace").split()


async def reach(gate: asyncio.Semaphore, name: str, address: str, word: str) -> None:
    """Connect until it works; a refusal may mean that the other host has not begun yet."""
    port = int(word.rstrip("!"))
    while True:
        async with gate:
            result = await attempt(name, address, port, word.endswith("!"))
        results[name, port] = result
        if result != "refused" or time.monotonic() > DEADLINE:
            return
        await asyncio.sleep(0.25)


async def main() -> None:
    """Listen, connect, and wait for the connections of the others."""
    servers = await listen()
    gate = asyncio.Semaphore(64)
    calls = [
        reach(gate, name, address, word) for name, address, *words in TARGETS for word in words
    ]
    pending = [asyncio.ensure_future(call) for call in calls]
    if pending:
        await asyncio.wait(pending, timeout=max(DEADLINE - time.monotonic(), 0) + CONNECT_SECONDS)
    for call in pending:
        call.cancel()
    # A source that is late must still find its listener.
    expected = {(name, port) for port, _ in servers for name in SOURCES}
    while not expected <= heard and time.monotonic() < DEADLINE:
        await asyncio.sleep(0.1)
    for name, _, *words in TARGETS:
        for word in words:
            port = int(word.rstrip("!"))
            print("= mesh", name, port, results.get((name, port), "timed out"))
    for _, server in servers:
        server.close()
    print("= complete yes")


loop = asyncio.new_event_loop()
asyncio.set_event_loop(loop)
loop.run_until_complete(main())
