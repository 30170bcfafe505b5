"""The site's side of a job, as FLARE calls it in the worker process of the site."""

import json
from pathlib import Path

from nvflare.apis.executor import Executor
from nvflare.apis.fl_constant import ReturnCode
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable, make_reply
from nvflare.apis.signal import Signal

from epifed.federation.codes import Code
from epifed.federation.messages import Parts, pack_code
from epifed.federation.site import SiteWork

HELLO, TRAIN, DELIVER = "hello", "train", "deliver"


class FederationExecutor(Executor):  # type: ignore[misc]
    """Hands tasks to `SiteWork` and its answers back, as they are."""

    def __init__(self) -> None:
        super().__init__()
        self._work: SiteWork | None = None

    def execute(
        self, task_name: str, shareable: Shareable, fl_ctx: FLContext, abort_signal: Signal
    ) -> Shareable:
        """The answer to a task."""
        del abort_signal
        try:
            kit = Path(fl_ctx.get_engine().get_workspace().get_root_dir())
            self._work = self._work or SiteWork(kit, self.logger.warning)
            if task_name == HELLO:
                self._work.prepare(json.loads(shareable["about"])["settings"])
                answer = {"about": "{}"}
            elif task_name == TRAIN:
                answer, error = self._work.answer(dict(shareable))
                if error:
                    self.log_warning(fl_ctx, f"no contribution: {error!r}", fire_event=False)
            else:
                about = json.loads(shareable["about"])
                release = self._work.receive(shareable["array"], about["paid"], about["training"])
                answer = {"about": json.dumps({"sha256": release.sha256})}
                self.log_info(fl_ctx, f"release received: {release.sentence()}", fire_event=False)
        except Exception as error:
            self.log_error(fl_ctx, f"no contribution: {error!r}", fire_event=False)
            answer = pack_code("", 0, Code.ERROR)
        return _reply(answer)


def _reply(parts: Parts) -> Shareable:
    reply = make_reply(ReturnCode.OK)
    reply.update(parts)
    return reply
