"""Sockets: what accepts connections, reads frames from them and writes answers to them, on the broker's one event loop.

In: bytes of clients and other brokers, timers, work of background threads that is done. Out: whole frames to
`requests.request_dispatcher`; answers, by sendfile where they are regions of files. `SocketServer` owns the loop's
thread; a `Connection` is owned by the loop; what waits has a place in the `TimingWheel`.
"""
