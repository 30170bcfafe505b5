"""A site's or an aggregator's side of a job, which FLARE calls in the party's worker process."""

from collections.abc import Callable
from pathlib import Path

from nvflare.apis.executor import Executor
from nvflare.apis.fl_constant import ReturnCode
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable, make_reply
from nvflare.apis.signal import Signal

from epifed.federation.aggregator import TERMS, AggregatorWork
from epifed.federation.flare.engine_patches import with_party
from epifed.federation.messages import (
    Code,
    Delivery,
    Greeting,
    MessageError,
    Parts,
    fields_or_none,
    pack_code,
    pack_receipt,
)
from epifed.federation.site import SiteWork

HELLO, ASK, TRAIN, ADD, DELIVER = "hello", "ask", "train", "add", "deliver"


class FederationExecutor(Executor):  # type: ignore[misc]
    """Passes tasks to `SiteWork` or `AggregatorWork` and returns their answers unchanged."""

    def __init__(self) -> None:
        super().__init__()
        with_party()
        self._work: SiteWork | AggregatorWork | None = None

    def execute(
        self, task_name: str, shareable: Shareable, fl_ctx: FLContext, abort_signal: Signal
    ) -> Shareable:
        """Answer a task; an error becomes a code."""
        del abort_signal
        try:
            kit = Path(fl_ctx.get_engine().get_workspace().get_root_dir())
            self._work = self._work or _work(kit, self.logger.warning)
            parts = dict(shareable)
            if task_name == HELLO:
                answer = _greeting(self._work, Greeting.unpack(parts))
            elif task_name == ASK:
                answer = self._work.ready(parts)
                asked, ready = fields_or_none(parts), fields_or_none(answer)
                self.logger.info(f"asked for '{asked.get('training')}': {ready.get('code')}")
            elif task_name == (TRAIN if isinstance(self._work, SiteWork) else ADD):
                answer, error = self._work.answer(parts)
                about = fields_or_none(answer)
                if not error:
                    self.logger.info(f"'{about.get('training')}': round {about.get('round')} sent")
                if error:
                    self.log_warning(fl_ctx, f"no contribution: {error!r}", fire_event=False)
            elif task_name == DELIVER:
                delivery = Delivery.unpack(parts)
                release = self._work.receive(delivery)
                answer = pack_receipt(release.sha256)
                self.logger.info(f"'{delivery.training}': release received: {release.sentence()}")
            else:
                answer = pack_code("", 0, Code.BAD_TASK)
        except Exception as error:
            self.log_error(fl_ctx, f"no contribution: {error!r}", fire_event=False)
            code = error.code if isinstance(error, MessageError) else Code.ERROR
            answer = pack_code("", 0, code)
        return _reply(answer)


def _work(kit: Path, say: Callable[[str], None]) -> SiteWork | AggregatorWork:
    """The site or aggregator of a kit."""
    return AggregatorWork(kit) if (kit / TERMS).exists() else SiteWork(kit, say)


def _greeting(work: SiteWork | AggregatorWork, greeting: Greeting) -> Parts:
    """A party's answer to the greeting: its protocols, and an aggregator's public keys."""
    if isinstance(work, AggregatorWork):
        return Greeting.own(keys=work.keys.public.text).pack()
    work.prepare(greeting)
    return Greeting.own().pack()


def _reply(parts: Parts) -> Shareable:
    reply = make_reply(ReturnCode.OK)
    reply.update(parts)
    return reply
