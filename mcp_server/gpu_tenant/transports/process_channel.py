"""A channel that is a process of this computer: its input and output are the channel's."""

import os
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from socket import socketpair
from threading import Thread


class Child:
    """A process with sockets for its input and output; what it complains of is nobody's to read.

    It is in a session of its own, so that an interrupt at the terminal is told by us, in our order.
    """

    def __init__(
        self, argv: Sequence[str], *, cwd: Path | None = None, env: Mapping[str, str] | None = None
    ) -> None:
        """Raises: OSError: it could not be started."""
        theirs_in, self.writer = socketpair()
        self.reader, theirs_out = socketpair()
        with theirs_in, theirs_out, ExitStack() as on_failure:
            on_failure.callback(self.writer.close)
            on_failure.callback(self.reader.close)
            self._process = subprocess.Popen(
                list(map(os.fsencode, argv)),
                stdin=theirs_in.fileno(),
                stdout=theirs_out.fileno(),
                stderr=subprocess.DEVNULL,
                cwd=cwd,
                env=None if env is None else dict(env),
                start_new_session=True,
            )
            on_failure.pop_all()
        # Whoever ends it, and whenever: nothing of it is left behind.
        Thread(target=self._process.wait, name="reaper", daemon=True).start()

    def hang_up(self) -> None:
        """The process is told to end at once."""
        self._process.kill()
