"""The locked policies of every kit, in place of FLARE's permissive defaults.

No code from outside, no class but epifed's own, no shell, no log that leaves a site, one submitter.
`lock` writes them when a kit is made and again whenever a party starts.
"""

import json
from pathlib import Path
from typing import Any

from epifed.federation.roster import AGAIN
from epifed.files import write_text

PACKAGE = "epifed.federation.flare"
CONTROLLER = f"{PACKAGE}.controller.FederationController"
EXECUTOR = f"{PACKAGE}.executor.FederationExecutor"

ROLE = "lead"
"""The one role that may start a training: the coordinator's."""
MORE_THAN_ENOUGH = 10_000
"""Connections a server takes; the roster decides who they may be."""

MOST_STREAMS = 2_000
"""Connections served at once: two of each site, and the coordinator's."""
MOST_BYTES = 256 * 2**20
"""Of a message between parties; the server's worker knows what its training can need and takes
less."""
MOST_FRAME = 32 * 2**20
"""Bytes of one piece of it on the wire; FLARE sends pieces of 1 MiB."""
HANDSHAKE = 10
"""Seconds in which a connection must have shown its certificate, or it is dropped."""

_NONE = "none"


def authorization() -> dict[str, Any]:
    """Who may ask for what. A role that is not named may do nothing."""
    return {
        "format_version": "1.0",
        "permissions": {
            ROLE: {
                "submit_job": "any",
                "clone_job": _NONE,
                "manage_job": "n:submitter",
                "download_job": "n:submitter",
                "app_command": "n:submitter",
                "view": "any",
                "operate": _NONE,
                "shell_commands": _NONE,
                "byoc": _NONE,
                "server-predeployed-flwr": _NONE,
            },
        },
    }


def site_resources() -> dict[str, Any]:
    """`resources.json` of a site: no log streaming, our executor alone."""
    return {
        "format_version": 2,
        "class_list_enforcement_mode": "enforce",
        "class_allow_list": [EXECUTOR],
        "allow_log_streaming": False,
        "client": {"retry_timeout": 30, "compression": "Gzip", "communication_timeout": AGAIN},
        "components": [
            _component(
                "resource_manager",
                "nvflare.app_common.resource_managers.gpu_resource_manager.GPUResourceManager",
                num_of_gpus=0,
                mem_per_gpu_in_GiB=0,
                expiration_period=300,
            ),
            _component(
                "resource_consumer",
                "nvflare.app_common.resource_consumers.gpu_resource_consumer.GPUResourceConsumer",
            ),
            _component(
                "process_launcher",
                "nvflare.app_common.job_launcher.client_process_launcher.ClientProcessJobLauncher",
            ),
        ],
    }


def server_resources(kit: Path, statsd: int | None = None) -> dict[str, Any]:
    """`resources.json` of the server: what it stores stays in its kit.

    `statsd` is a port of this machine that FLARE's own counts of heartbeats and disconnections are
    sent to. They name no site. Sites have no such thing, and stream none.
    """
    store = "nvflare.app_common.storages.filesystem_storage.FilesystemStorage"
    return {
        "format_version": 2,
        "class_list_enforcement_mode": "enforce",
        "class_allow_list": [CONTROLLER],
        "servers": [
            {
                "admin_storage": "transfer",
                "max_num_clients": MORE_THAN_ENOUGH,
                "heart_beat_timeout": 60,
                "download_job_url": "http://localhost/",
                "admin_timeout": 10.0,
            }
        ],
        "snapshot_persistor": {
            "path": "nvflare.app_common.state_persistors.storage_state_persistor"
            ".StorageStatePersistor",
            "args": {
                "uri_root": "/",
                "storage": {
                    "path": store,
                    "args": {"root_dir": str(kit / "store" / "snapshots"), "uri_root": "/"},
                },
            },
        },
        "components": [
            _component(
                "job_scheduler",
                "nvflare.app_common.job_schedulers.job_scheduler.DefaultJobScheduler",
                max_jobs=1,
                max_schedule_count=1_000_000,
                min_schedule_interval=1.0,
                max_schedule_interval=5.0,
            ),
            _component(
                "job_manager",
                "nvflare.apis.impl.job_def_manager.SimpleJobDefManager",
                uri_root=str(kit / "store" / "jobs"),
                job_store_id="job_store",
            ),
            _component("job_store", store),
            _component(
                "process_launcher",
                "nvflare.app_common.job_launcher.server_process_launcher.ServerProcessJobLauncher",
            ),
            *(_heartbeats(statsd) if statsd else ()),
        ],
    }


def _heartbeats(port: int) -> list[dict[str, Any]]:
    """FLARE's collector of its own events, and its reporter of what was collected."""
    tags = {"site": "server"}
    return [
        _component(
            "system_metrics",
            "nvflare.metrics.system_metrics_collector.SysMetricsCollector",
            tags=tags,
            streaming_to_server=False,
        ),
        _component(
            "statsd_reporter",
            "nvflare.fuel_opt.statsd.statsd_reporter.StatsDReporter",
            site="server",
            host="127.0.0.1",
            port=port,
        ),
    ]


def connections() -> dict[str, Any]:
    """`comm_config.json`: how large a message may be, and how long a connection may say nothing."""
    return {
        "allow_adhoc_conns": False,
        "streaming_max_blob_size": MOST_BYTES,
        "grpc": {
            "max_workers": MOST_STREAMS,
            "options": [
                ["grpc.max_send_message_length", MOST_FRAME],
                ["grpc.max_receive_message_length", MOST_FRAME],
                ["grpc.server_handshake_timeout_ms", 1000 * HANDSHAKE],
            ],
        },
    }


def lock(kit: Path, statsd: int | None = None) -> None:
    """Write the locked policies into a kit; a weaker file that was there is replaced."""
    kit = kit.resolve()
    local = kit / "local"
    resources = server_resources(kit, statsd) if is_server(kit) else site_resources()
    write_text(local / "resources.json", json.dumps(resources, indent=2))
    write_text(local / "authorization.json", json.dumps(authorization(), indent=2))
    write_text(local / "comm_config.json", json.dumps(connections(), indent=2))
    for name in ("resources.json.default", "authorization.json.default", "privacy.json.sample"):
        (local / name).unlink(missing_ok=True)


def is_server(kit: Path) -> bool:
    """Whether a kit is the server's."""
    return (kit / "startup" / "fed_server.json").is_file()


def _component(name: str, path: str, **args: Any) -> dict[str, Any]:
    return {"id": name, "path": path, "args": args}
