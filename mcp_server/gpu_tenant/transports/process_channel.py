"""A channel to a process on this computer, through its input and output."""

import os
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from socket import socketpair
from threading import Thread


class Child:
    """A process with sockets for its input and output. Its error output is dropped.

    The process has a session of its own. So an interrupt at the terminal does not reach it, and we decide when
    it ends.
    """

    def __init__(
        self, argv: Sequence[str], *, cwd: Path | None = None, env: Mapping[str, str] | None = None
    ) -> None:
        """Start the process.

        Raises:
            OSError: it could not be started.
        """
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
        # This thread waits for the process, so that no zombie is left behind when it ends.
        Thread(target=self._process.wait, name="reaper", daemon=True).start()

    def hang_up(self) -> None:
        """Kill the process."""
        self._process.kill()
