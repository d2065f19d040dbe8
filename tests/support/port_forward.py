"""Stands for `kubectl port-forward [--namespace N] KIND/NAME [LOCAL:]REMOTE`: forwards a local port to the broker that
PORT_FORWARDS, a JSON object, has for KIND/NAME.
"""

from __future__ import annotations

import asyncio
import errno
import json
import os
import sys


async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()
    except OSError:
        pass  # one side has gone; so does the other
    finally:
        writer.close()


async def main(name: str, local: int) -> None:
    target = json.loads(os.environ["PORT_FORWARDS"])[name]

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there = await asyncio.open_connection("127.0.0.1", target)
        await asyncio.gather(pump(reader, there[1]), pump(there[0], writer))

    while True:
        try:
            server = await asyncio.start_server(serve, "127.0.0.1", local)
            break
        except OSError as error:  # of a forward that has just been ended
            if error.errno != errno.EADDRINUSE:
                raise
            await asyncio.sleep(0.1)
    await server.serve_forever()


if __name__ == "__main__":
    verb, *_, name, ports = sys.argv[1:]
    assert verb == "port-forward"
    asyncio.run(main(name, int(ports.partition(":")[0])))
