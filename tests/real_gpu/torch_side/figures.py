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

    side = 8192
    one = torch.full((2**28,), 7.0, device="cuda")
    other = torch.empty_like(one)
    half = torch.randn(side, side, device="cuda", dtype=torch.bfloat16)
    half_out = torch.empty_like(half)
    whole = half.float()
    whole_out = torch.empty_like(whole)
    host = torch.empty(2**28, dtype=torch.uint8, pin_memory=True)
    there = torch.empty(2**28, dtype=torch.uint8, device="cuda")
    torch.backends.cuda.matmul.allow_tf32 = False

    def rate(work, turns, seconds=2.0):
        """Turns a second, the best of several batches, after one turn that is not counted."""
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

    flops, size = 2 * side**3, 2**28
    told["copy_gb_s"] = rate(lambda: other.copy_(one), 20) * 2 * 4 * size / 1e9
    told["bf16_tflops"] = rate(lambda: torch.mm(half, half, out=half_out), 20) * flops / 1e12
    told["fp32_tflops"] = rate(lambda: torch.mm(whole, whole, out=whole_out), 3) * flops / 1e12
    told["to_gpu_gb_s"] = rate(lambda: there.copy_(host, non_blocking=True), 4) * size / 1e9
    told["to_host_gb_s"] = rate(lambda: host.copy_(there, non_blocking=True), 4) * size / 1e9
    print(json.dumps(told))


if __name__ == "__main__":
    main()
