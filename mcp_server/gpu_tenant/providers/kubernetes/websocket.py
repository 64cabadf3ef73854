"""A websocket that carries an exec: frames in both directions in one thread, and the Python at its far end."""

import os
import selectors
import socket
import ssl
import struct
from collections.abc import Callable

_READ_BYTES = 256 << 10
_AHEAD_BYTES = 1 << 20
"""How much input may wait here while the server accepts none."""
_QUIET_S, _SILENT_S = 30, 120
"""After `_QUIET_S` of silence a ping is sent. After `_SILENT_S` the other end counts as gone."""
_MOST_BYTES = 32 << 20
"""No server sends a frame as large as this."""
_BINARY, _CLOSE, _PING, _PONG = 2, 8, 9, 10
_STDIN = 0

FAR_END = """\
import errno,json,os,signal,struct,subprocess,sys,threading,time
def take(n):
    got=b""
    while len(got)<n:
        more=os.read(0,n-len(got))
        if not more: raise EOFError
        got+=more
    return got
def piece(): return take(struct.unpack(">I",take(4))[0])
lock=threading.Lock()
def tell(kind,said):
    said=memoryview(struct.pack(">BI",kind,len(said))+said)
    with lock:
        while len(said): said=said[os.write(2,said):]
fed=threading.Event()
command=None
def feed():
    try:
        while True:
            chunk=memoryview(piece())
            if not len(chunk): break
            try:
                while len(chunk): chunk=chunk[command.stdin.write(chunk):]
            except (OSError,AttributeError): pass
        if command: command.stdin.close()
        fed.set()
        take(1)
    except EOFError: pass
    fed.set()
    for number in (signal.SIGTERM,signal.SIGKILL):
        try: os.killpg(command.pid,number)
        except (OSError,AttributeError): pass
        time.sleep(2)
def complain():
    for said in iter(lambda: os.read(command.stderr.fileno(),65536),b""): tell(1,said)
argv=[os.fsencode(word) for word in json.loads(piece().decode())]
try:
    os.chdir(os.path.expanduser("~"))
    command=subprocess.Popen(argv,stdin=subprocess.PIPE,stderr=subprocess.PIPE,bufsize=0,start_new_session=True)
except OSError as error:
    tell(1,("%s: %s\\n"%(ascii(argv[0]),error.strerror)).encode())
    code=127 if error.errno==errno.ENOENT else 126
threading.Thread(target=feed,daemon=True).start()
if command:
    complaints=threading.Thread(target=complain,daemon=True)
    complaints.start()
    code=command.wait()
    complaints.join(2)
code=code if code>=0 else 128-code
tell(0,bytes((code,)))
fed.wait()
os._exit(code)
"""
"""The program at the far end: it runs the command that it is sent, in the home directory of the login.

Input comes in pieces, each preceded by its length. An empty piece ends the input. If the link breaks, before or after
the input has ended, the command is told to end. Processes that the command has detached into a session of their own
are left alone.

Error output goes back in pieces, too (kind 1), and so does the exit status (kind 0). Then the program waits until its
input has ended, because a server that hangs up while bytes are unread drops the program's last output.
"""


class Frames:
    """The client side of a websocket that is connected and past its handshake."""

    def __init__(self, link: socket.socket) -> None:
        self._link = link
        self._link.setblocking(False)
        self._came = bytearray()
        self._going = bytearray()
        self._feeding = True
        self._hang_up, self._told = socket.socketpair()

    def hang_up(self) -> None:
        """End the link, even if a thread waits on it. May be called from another thread, and more than once."""
        try:
            self._hang_up.send(b"x")
        except OSError:
            return

    def end_input(self) -> None:
        """Send no more input, even if some is left here. Only for the thread that runs `carry`."""
        if self._feeding:
            self._feeding = False
            self._say(b"")

    def close(self) -> None:
        """Close every socket."""
        for each in (self._link, self._hang_up, self._told):
            each.close()

    def carry(
        self, order: bytes, source: socket.socket, take: Callable[[int, bytes], None]
    ) -> None:
        """Send `order` and all of `source`, and pass what the far end sends to `take`, until the far end hangs up.

        Raises:
            OSError: the link broke.
            EOFError: the link was cut off, the far end no longer answered, or this side hung up.
        """
        self._say(order)
        source.setblocking(False)
        quiet_s = 0
        with selectors.DefaultSelector() as waiting:
            waiting.register(self._told, selectors.EVENT_READ)
            waiting.register(self._link, selectors.EVENT_READ)
            while True:
                hungry = self._feeding and len(self._going) < _AHEAD_BYTES
                _watch(waiting, source, selectors.EVENT_READ if hungry else 0)
                sends = selectors.EVENT_WRITE if self._going else 0
                _watch(waiting, self._link, selectors.EVENT_READ | sends)
                happened = {key.fileobj for key, _ in waiting.select(_QUIET_S)}
                if self._told in happened:
                    raise EOFError("this computer closed the link")
                if self._link in happened:
                    quiet_s = 0
                    self._send()
                    if self._receive(take) == "over":
                        return
                elif not happened:
                    quiet_s += _QUIET_S
                    if quiet_s >= _SILENT_S:
                        raise EOFError("the other end does not answer")
                    self._frame(_PING, b"")
                if source in happened and self._feeding:
                    self._say(chunk := source.recv(_READ_BYTES))
                    self._feeding = bool(chunk)

    def _say(self, piece: bytes) -> None:
        self._frame(_BINARY, bytes((_STDIN,)) + struct.pack(">I", len(piece)) + piece)

    def _frame(self, kind: int, content: bytes) -> None:
        """Queue one frame for sending. It is masked, as a client's frames must be."""
        size = len(content)
        if size < 126:
            head = struct.pack(">BB", 0x80 | kind, 0x80 | size)
        elif size < 1 << 16:
            head = struct.pack(">BBH", 0x80 | kind, 0x80 | 126, size)
        else:
            head = struct.pack(">BBQ", 0x80 | kind, 0x80 | 127, size)
        mask = os.urandom(4)
        self._going += head + mask + _mask(content, mask)

    def _send(self) -> None:
        try:
            while self._going:
                with memoryview(self._going) as all_of_it:
                    sent = self._link.send(all_of_it[:_READ_BYTES])
                del self._going[:sent]
        except (BlockingIOError, ssl.SSLWantWriteError, ssl.SSLWantReadError):
            return

    def _receive(self, take: Callable[[int, bytes], None]) -> str:
        """Hand on what arrived. Return `over` if the far end closed the link properly."""
        while True:
            try:
                chunk = self._link.recv(_READ_BYTES)
            except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
                return ""
            if not chunk:
                raise EOFError("the link was cut off")
            self._came += chunk
            while (frame := self._next()) is not None:
                kind, content = frame
                if kind == _CLOSE:
                    return "over"
                if kind == _PING:
                    self._frame(_PONG, content)
                elif kind != _PONG and content:
                    take(content[0], content[1:])

    def _next(self) -> tuple[int, bytes] | None:
        """Remove the first complete frame from what arrived, and return it. It may be a fragment of a message."""
        came = self._came
        if len(came) < 2:
            return None
        kind, size, at = came[0] & 0x0F, came[1] & 0x7F, 2
        if size >= 126:
            at = 4 if size == 126 else 10
            if len(came) < at:
                return None
            size = int.from_bytes(came[2:at], "big")
        if size > _MOST_BYTES:
            raise EOFError("what came is not from a websocket")
        if len(came) < at + size:
            return None
        content = bytes(came[at : at + size])
        del came[: at + size]
        return kind, content


def _mask(content: bytes, mask: bytes) -> bytes:
    whole = mask * (len(content) // 4 + 1)
    size = len(content)
    mixed = int.from_bytes(content, "big") ^ int.from_bytes(whole[:size], "big")
    return mixed.to_bytes(size, "big")


def _watch(waiting: selectors.BaseSelector, what: socket.socket, events: int) -> None:
    """Wait for exactly these events of that socket from now on."""
    known = waiting.get_map().get(what)
    if known is None:
        if events:
            waiting.register(what, events)
    elif not events:
        waiting.unregister(what)
    elif known.events != events:
        waiting.modify(what, events)


class StderrParser:
    """Reads error output and the exit status from what the far end sends, in pieces of any size."""

    def __init__(self) -> None:
        self._came = bytearray()
        self.exit_status: int | None = None
        """The command's exit status. None while it runs, or if the far end never started."""

    def complaints(self, chunk: bytes) -> bytes:
        """Return the error output in this chunk.

        Text that does not have our form counts as error output: another program ran in place of ours.
        """
        self._came += chunk
        complaints = bytearray()
        while len(self._came) >= 5:
            kind, size = struct.unpack_from(">BI", self._came)
            if kind > 1 or size > _MOST_BYTES:
                complaints += self._came
                self._came.clear()
            elif len(self._came) < 5 + size:
                break
            else:
                said = self._came[5 : 5 + size]
                del self._came[: 5 + size]
                if kind == 1:
                    complaints += said
                else:
                    self.exit_status = said[0]
        return bytes(complaints)
