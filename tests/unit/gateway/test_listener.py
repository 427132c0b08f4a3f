"""The socket that a server listens on."""

import asyncio
import socket

from holdfast.gateway.http.context import GatewaySettings
from holdfast.gateway.server.serve import _listening
from holdfast.testing.loop import in_loop


@in_loop
async def test_the_listener_sends_without_a_delay_for_acknowledgements() -> None:
    """
    An answer is a head and a body: held back until the head was received, every one of them took 40
    ms longer.
    """
    accepted: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    def note(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        accepted.set_result(
            writer.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        )
        writer.close()

    sock = _listening(GatewaySettings(port=0))
    async with await asyncio.start_server(note, sock=sock):
        _, writer = await asyncio.open_connection(*sock.getsockname()[:2])
        assert await accepted
        writer.close()
