"""What torch itself reaches on this GPU: copies within it and to it, and products of matrices. JSON."""

import json
import time


def main() -> None:
    import torch

    properties = torch.cuda.get_device_properties(0)
    told = {
        "torch": torch.__version__,
        "name": properties.name,
        "total_mib": properties.total_memory / 2**20,
        "free_mib": torch.cuda.mem_get_info()[0] / 2**20,
    }

    def rate(work, turns, seconds=2.0):
        """Turns a second, the best of several batches, after one that is not counted."""
        best, until = 0.0, time.monotonic() + seconds
        work()
        torch.cuda.synchronize()
        while not best or time.monotonic() < until:
            began = time.monotonic()
            for _ in range(turns):
                work()
            torch.cuda.synchronize()
            best = max(best, turns / (time.monotonic() - began))
        return best

    one = torch.full((2**28,), 7.0, device="cuda")
    other = torch.empty_like(one)
    told["copy_gb_s"] = rate(lambda: other.copy_(one), 20) * 2 * 2**30 / 1e9
    del one, other
    side = 8192
    a = torch.randn(side, side, device="cuda", dtype=torch.bfloat16)
    c = torch.empty_like(a)
    told["bf16_tflops"] = rate(lambda: torch.mm(a, a, out=c), 20) * 2 * side**3 / 1e12
    torch.backends.cuda.matmul.allow_tf32 = False
    a, c = a.float(), c.float()
    told["fp32_tflops"] = rate(lambda: torch.mm(a, a, out=c), 3) * 2 * side**3 / 1e12
    del a, c
    host = torch.empty(2**28, dtype=torch.uint8, pin_memory=True)
    there = torch.empty(2**28, dtype=torch.uint8, device="cuda")
    told["to_gpu_gb_s"] = rate(lambda: there.copy_(host, non_blocking=True), 4) * 2**28 / 1e9
    told["to_host_gb_s"] = rate(lambda: host.copy_(there, non_blocking=True), 4) * 2**28 / 1e9
    print(json.dumps(told))


if __name__ == "__main__":
    main()
