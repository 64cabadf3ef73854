"""The programs of which jobs are made, and the places they are put in."""

import sys
from collections.abc import Mapping
from typing import Final

PROGRESS: Final = (
    "print('ready', flush=True)\nfor n in range(50): print(f'step {n}/1000 loss 0.5', flush=True)\n"
)
WAITS: Final = "import time\nprint('ready', flush=True)\ntime.sleep(60)\n"
SMALL: Final = ("tmpfs", "size=1m,nr_inodes=100")
FEW_INODES: Final = ("tmpfs", "size=64m,nr_inodes=20")
SHM: Final = "mount -t tmpfs -o size=1m shm /dev/shm"
SEGMENT: Final = "/dev/shm/seg"  # noqa: S108
NO_KERNEL_LOG: Final = "mount --bind /dev/null /dev/kmsg"
EATS: Final = "kept = []\nwhile True: kept.append(b'x' * (4 << 20))\n"
FILLS: Final = "f = open('big', 'wb', buffering=0)\nwhile True: f.write(b'x' * 65536)\n"
FILES: Final = "import itertools\nfor n in itertools.count(): open(f'f{n}', 'w').close()\n"
MAPS: Final = (
    "import mmap\nf = open(%r, 'w+b')\nf.truncate(4 << 20)\nm = mmap.mmap(f.fileno(), 4 << 20)\n"
    "for at in range(0, 4 << 20, 4096): m[at] = 1\n"
)
CHILD_EATS: Final = (
    "import subprocess, sys\neats = 'kept = []\\nwhile True: kept.append(b\"x\" * (4 << 20))'\n"
    "done = subprocess.run([sys.executable, '-c', eats])\n"
)

C_SOURCES: Final[Mapping[str, str]] = {
    "segv": "int main(void) { *(volatile int *)8 = 1; return 0; }",
    "aborts": "#include <stdlib.h>\nint main(void) { abort(); }",
    "returns7": "int main(void) { return 7; }",
    "divides": "#include <signal.h>\nint main(void) { raise(SIGFPE); return 0; }",
    "eats": "#include <stdlib.h>\n#include <string.h>\nint main(void) { for (;;) { char *p = malloc(1 << 20);"
    " if (!p) return 4; memset(p, 1, 1 << 20); } }",
    "fills": '#include <stdio.h>\nint main(void) { static char b[65536]; FILE *f = fopen("big", "w");'
    " while (fwrite(b, sizeof b, 1, f) == 1 && !fflush(f)); return 1; }",
    "files": '#include <stdio.h>\nint main(void) { char n[32]; for (int i = 0;; i++) { sprintf(n, "f%d", i);'
    ' FILE *f = fopen(n, "w"); if (!f) return 1; fclose(f); } }',
    "asks": '#include <stdio.h>\n#include <stdlib.h>\nint main(void) { if (!malloc(1UL << 40)) { perror("asks");'
    " return 1; } return 0; }",
}


def python(code: str) -> list[str]:
    """A Python program."""
    return [sys.executable, "-c", code]


def shell(script: str) -> list[str]:
    """A shell script."""
    return ["sh", "-c", script]


def says(text: str, code: int = 1, *, before: str = "") -> list[str]:
    """A program that prints so, after some progress, and exits."""
    return python(f"{before}{PROGRESS}print({text!r}, flush=True)\nraise SystemExit({code})\n")


def says_and_dies(text: str, name: str) -> list[str]:
    """A program that prints so and is ended by that signal."""
    return python(
        f"import os, signal\n{PROGRESS}print({text!r}, flush=True)\nos.kill(os.getpid(), signal.SIG{name})\n"
    )
