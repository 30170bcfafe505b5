"""Listens to every frame in a network namespace until it is ended; run as a program.

    python wire.py OUT CANARY …

writes who opened a TCP connection to whom, every other protocol between machines, and which of the
canaries went by readably.
"""

import json
import signal
import socket
import struct
import sys
from pathlib import Path

EVERYTHING, IPV4, TCP = 3, 0x0800, 6
SYN, ACK = 0x02, 0x10
HARMLESS = {0x0806, 0x86DD}
"""Address resolution, and IPv6, in which the machines have neighbours but no address."""


def main(out: Path, canaries: list[bytes]) -> None:
    opened: set[tuple[str, str, int]] = set()
    others: set[int] = set()
    read: set[bytes] = set()
    frames, held = 0, b""

    def end(*_: object) -> None:
        found = {"opened": sorted(opened), "others": sorted(others), "frames": frames}
        out.write_text(json.dumps(found | {"read": sorted(map(bytes.decode, read))}))
        sys.exit(0)

    signal.signal(signal.SIGTERM, end)
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(EVERYTHING)) as wire:
        print("listening", flush=True)
        while True:
            frame = wire.recv(1 << 16)
            frames += 1
            read |= {canary for canary in canaries if canary in held + frame}
            held = frame[-max(map(len, canaries)) :]
            (kind,) = struct.unpack("!H", frame[12:14])
            if kind == IPV4 and frame[23] == TCP:
                start = 14 + 4 * (frame[14] & 0x0F)
                flags = frame[start + 13]
                if flags & SYN and not flags & ACK:
                    source, target = map(socket.inet_ntoa, (frame[26:30], frame[30:34]))
                    (port,) = struct.unpack("!H", frame[start + 2 : start + 4])
                    opened.add((source, target, port))
            elif kind not in HARMLESS:
                others.add(kind)


if __name__ == "__main__":
    main(Path(sys.argv[1]), [word.encode() for word in sys.argv[2:]])
