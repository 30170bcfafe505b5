"""What FLARE ends a whole job for because of one site, made that site's own problem.

FLARE ends the server's worker if an answer cannot be decoded or a site says that a message was too
large for it, and the job if a site says a certain code, sends an event or reports a failure. Any
enrolled site could so stop every training without being named. Here each of these is refused, and
`GATE` remembers whose it was.
"""

from dataclasses import dataclass, field
from typing import Any

from nvflare.apis.fl_constant import ReturnCode
from nvflare.apis.shareable import Shareable, make_reply
from nvflare.fuel.f3.cellnet import cell
from nvflare.fuel.f3.cellnet.defs import MessageHeaderKey
from nvflare.fuel.f3.cellnet.fqcn import FQCN
from nvflare.fuel.f3.message import Message
from nvflare.fuel.f3.streaming import blob_streamer
from nvflare.private.defs import JobFailureMsgKey
from nvflare.private.fed.server.fed_server import FederatedServer
from nvflare.private.fed.server.server_runner import ServerRunner
from nvflare.widgets.fed_event import ServerFedEventRunner

from epifed.federation.codes import Code


@dataclass
class Gate:
    """What a worker of the server lets in: messages of at most so many bytes that can be read."""

    most: int | None = None
    refused: dict[str, Code] = field(default_factory=dict)
    """Sites whose message was refused before it became one, and why."""

    def refuse(self, headers: dict[str, Any] | None, code: Code) -> None:
        """Remember the site that a message came from; FLARE has compared it with its token."""
        origin = (headers or {}).get(MessageHeaderKey.ORIGIN)
        if isinstance(origin, str):
            self.refused[FQCN.split(origin)[0]] = code


GATE = Gate()
"""Of this process."""


class _BoundedBlob(blob_streamer.BlobTask):  # type: ignore[misc]
    """A message that is refused by the size it declares, before there is memory for it."""

    def __init__(
        self, future: Any, stream: Any, max_size: int = 0, preserve_chunks: bool = False
    ) -> None:
        if GATE.most is not None:
            max_size = min(max_size or GATE.most, GATE.most)
        super().__init__(future, stream, max_size, preserve_chunks)


_decode, _fail = cell.decode_payload, blob_streamer.BlobHandler._fail
_report = FederatedServer.process_job_failure


def _decoded(message: Message, *args: Any, **options: Any) -> None:
    try:
        _decode(message, *args, **options)
    except Exception:
        GATE.refuse(message.headers, Code.MESSAGE)
        raise


def _failed(stream: Any, future: Any, error: Exception) -> None:
    GATE.refuse(stream.headers, Code.SIZE)
    _fail(stream, future, error)


def _dropped(self: Any, topic: str, request: Shareable, fl_ctx: Any) -> Shareable:
    """An event of a site, as the server could fire it: epifed has none."""
    del self, topic, request, fl_ctx
    return make_reply(ReturnCode.OK)


def _reported(self: Any, request: Message) -> Any:
    """A site's report that its worker failed, without the code that would end the job."""
    if isinstance(request.payload, dict):
        request.payload = request.payload | {JobFailureMsgKey.CODE: None}
    return _report(self, request)


def shield_worker() -> None:
    """In the worker of a job on the server: no message of a site ends it."""
    cell._is_server_job_cell = lambda _: False
    cell.decode_payload = _decoded
    blob_streamer.BlobTask = _BoundedBlob
    blob_streamer.BlobHandler._fail = staticmethod(_failed)
    ServerRunner.ABORT_RETURN_CODES = []
    ServerFedEventRunner._receive = _dropped


def shield_server() -> None:
    """In the server's own process: no report of a site ends a job."""
    FederatedServer.process_job_failure = _reported
