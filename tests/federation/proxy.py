"""A bad network between two ends of TCP: slow, narrow, cut, or silent; in user space, for tests."""

import asyncio
import threading
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Self

from tests.waiting import GUARD

CHUNK = 1 << 14
_Pipe = tuple[asyncio.StreamWriter, asyncio.StreamWriter]


@dataclass
class Proxy:
    """Listens on a port of this machine and passes on to another. All of it can be changed while
    connections are open."""

    target: int
    port: int = 0
    delay: float = 0.0
    """Seconds that every byte takes, each way."""
    rate: float | None = None
    """Bytes a second and direction of one connection; none: as fast as it goes."""
    silent: bool = False
    """Half open: connections stay, new ones are taken, and no byte comes through."""
    refusing: bool = False
    """New connections are dropped at once."""
    passed: int = 0
    """Bytes that came through, both ways together."""
    made: int = 0
    """Connections that were taken."""
    cuts: int = 0
    """Connections that were cut."""
    _open: list[_Pipe] = field(default_factory=list)
    _loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.new_event_loop)

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._server = self._call(asyncio.start_server(self._taken, "127.0.0.1", self.port))
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    def __exit__(self, *_: object) -> None:
        self._call(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(GUARD)
        self._loop.close()

    @property
    def open(self) -> int:
        """Connections that are open."""
        return len(self._open)

    def cut(self) -> None:
        """Break all connections off at once, as a reset does."""

        def act() -> None:
            for pipe in list(self._open):
                self.cuts += 1
                for end in pipe:
                    end.transport.abort()

        self._loop.call_soon_threadsafe(act)

    async def _end(self) -> None:
        self._server.close()
        left = asyncio.all_tasks() - {asyncio.current_task()}
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)

    def _call(self, work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(GUARD)

    async def _taken(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.made += 1
        if self.refusing:
            writer.transport.abort()
            return
        try:
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self.target)
        except OSError:
            writer.transport.abort()
            return
        pipe = (writer, far_writer)
        self._open.append(pipe)
        try:
            ways = self._way(reader, far_writer), self._way(far_reader, writer)
            with suppress(asyncio.CancelledError):  # the proxy ends, and its connections with it
                await asyncio.gather(*ways)
        finally:
            self._open.remove(pipe)
            for end in pipe:
                end.transport.abort()

    async def _way(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One direction: what is read now is written later, in its order."""
        held: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(maxsize=256)
        sending = asyncio.ensure_future(self._send(held, writer))
        with suppress(OSError):
            while data := await reader.read(CHUNK):
                await held.put((self._loop.time() + self.delay, data))
        await held.put((self._loop.time() + self.delay, b""))
        await sending

    async def _send(
        self, held: "asyncio.Queue[tuple[float, bytes]]", writer: asyncio.StreamWriter
    ) -> None:
        gone = False
        while True:
            due, data = await held.get()
            await asyncio.sleep(max(0.0, due - self._loop.time()))
            while self.silent and not writer.is_closing():
                await asyncio.sleep(0.05)
            if not data:
                break
            if self.rate:
                await asyncio.sleep(len(data) / self.rate)
            if gone:
                continue
            try:
                self.passed += len(data)  # before the far end can have seen them
                writer.write(data)
                await writer.drain()
            except OSError:
                gone = True
        with suppress(OSError, RuntimeError):
            writer.write_eof()
