"""Sockets: accepts connections, reads frames from them and writes answers to them, on the broker's one event loop.

In: bytes of clients and other brokers, timers, finished work of background threads. Out: whole frames to
`requests.request_dispatcher`; answers, by sendfile where they are regions of files. `SocketServer` owns the loop's
thread; a `Connection` is owned by the loop; waiting requests have timers in the `TimingWheel`.
"""
