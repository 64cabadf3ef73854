"""Keep the GPU at work for so many seconds: products of large matrices, and some memory in use."""

import sys
import time


def main() -> None:
    import torch

    seconds = float(sys.argv[1])
    # 6 GiB, so that nobody takes it for the driver's own part.
    held = torch.ones(6 * 2**30 // 4, device="cuda")
    a = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
    torch.cuda.synchronize()
    until, told = time.monotonic() + seconds, False
    while time.monotonic() < until:
        for _ in range(50):
            b = a @ a
        torch.cuda.synchronize()
        if not told:
            reserved = torch.cuda.memory_reserved() // 2**20
            print(f"busy {reserved} MiB reserved", flush=True)
            told = True
    print(float(b[0, 0]), float(held[0]))


if __name__ == "__main__":
    main()
