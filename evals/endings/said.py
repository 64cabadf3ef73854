"""What frameworks and schedulers print when they end a job, in their own forms and with our figures."""

from typing import Final

TORCH_FRAMES: Final = """Traceback (most recent call last):
  File "/work/train.py", line 88, in <module>
    main()
  File "/work/train.py", line 61, in main
    loss = model(batch).loss
"""

CUDA_OOM: Final = {
    "torch 2": TORCH_FRAMES
    + "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of "
    "79.15 GiB of which 1.19 GiB is free. Process 4242 has 77.95 GiB memory in use. Of the allocated memory "
    "75.10 GiB is allocated by PyTorch, and 2.01 GiB is reserved by PyTorch but unallocated.",
    "torch 1": TORCH_FRAMES
    + "RuntimeError: CUDA out of memory. Tried to allocate 20.00 MiB (GPU 0; 10.76 GiB total capacity; "
    "9.70 GiB already allocated; 12.56 MiB free; 9.81 GiB reserved in total by PyTorch)",
    "torch 2.1": TORCH_FRAMES
    + "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 512.00 MiB. GPU 1 has a total "
    "capacty of 23.65 GiB of which 301.06 MiB is free.",
    "bare": TORCH_FRAMES + "RuntimeError: CUDA error: out of memory\n"
    "CUDA kernel errors might be asynchronously reported at some other API call, so the stacktrace below "
    "might be incorrect.\nFor debugging consider passing CUDA_LAUNCH_BLOCKING=1",
    "cublas": TORCH_FRAMES
    + "RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
    "rocm": TORCH_FRAMES + "torch.OutOfMemoryError: HIP out of memory. Tried to allocate 1.50 GiB.",
    "jax": TORCH_FRAMES
    + "jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to allocate "
    "7406166528 bytes.\nBufferAssignment OOM Debugging.\nBufferAssignment stats:\n"
    "             parameter allocation:  372.76MiB",
    "tensorflow": TORCH_FRAMES
    + "tensorflow.python.framework.errors_impl.ResourceExhaustedError: {{function_node __wrapped__Conv2D}} OOM "
    "when allocating tensor with shape[512,64,224,224] and type float on "
    "/job:localhost/replica:0/task:0/device:GPU:0 by allocator GPU_0_bfc [Op:Conv2D]",
}

FIRST_CAUGHT: Final = CUDA_OOM["torch 2"]

_ENDS_RANK = (
    "Watchdog caught collective operation timeout: WorkNCCL(SeqNum=808, OpType=ALLREDUCE, NumelIn=9801523, "
    "NumelOut=9801523, Timeout(ms)=600000) ran for 600020 milliseconds before timing out."
)
WATCHDOG: Final = (
    f"[rank1]:[E626 06:24:44.903881913 ProcessGroupNCCL.cpp:616] [Rank 1] {_ENDS_RANK}\n"
    "[rank1]:[E626 06:24:44.906457629 ProcessGroupNCCL.cpp:1785] [PG ID 0 PG GUID 0(default_pg) Rank 1] Exception "
    "(either an error or timeout) detected by watchdog at work: 808, last enqueued NCCL work: 811, last "
    "completed NCCL work: 807.\n"
    "[rank1]:[E626 06:24:45.103881913 ProcessGroupNCCL.cpp:630] [Rank 1] To avoid data inconsistency, we are "
    "taking the entire process down.\n"
    "terminate called after throwing an instance of 'c10::DistBackendError'\n"
    f"  what():  [PG ID 0 PG GUID 0(default_pg) Rank 1] Process group watchdog thread terminated with exception: "
    f"[Rank 1] {_ENDS_RANK}\n"
    "Exception raised from checkTimeout at ../torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp:618 (most recent "
    "call first):\n"
    + "".join(
        f"frame #{n}: <unknown function> + 0xd6df{n % 10} (0x7f3bca9d5df4 in libstdc++.so.6)\n"
        for n in range(30)
    )
)


def torchrun(exitcode: int, says: str) -> str:
    """What torchrun prints when one of its processes has ended so."""
    return (
        f"E0325 20:57:27.620000 2606 torch/distributed/elastic/multiprocessing/api.py:869] failed (exitcode: "
        f"{exitcode}) local_rank: 1 (pid: 2630) of binary: /opt/conda/bin/python\n"
        "Traceback (most recent call last):\n"
        '  File "/opt/conda/bin/torchrun", line 8, in <module>\n'
        "    sys.exit(main())\n"
        '  File "/opt/conda/lib/python3.12/site-packages/torch/distributed/launcher/api.py", line 269, in launch_agent\n'
        "    raise ChildFailedError(\n"
        "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: \n"
        "============================================================\n"
        "train.py FAILED\n"
        "------------------------------------------------------------\n"
        "Failures:\n"
        "  <NO_OTHER_FAILURES>\n"
        "------------------------------------------------------------\n"
        "Root Cause (first observed failure):\n"
        "[0]:\n"
        "  time      : 2026-03-25_20:57:27\n"
        "  host      : box\n"
        "  rank      : 1 (local_rank: 1)\n"
        f"  exitcode  : {exitcode} (pid: 2630)\n"
        "  error_file: <N/A>\n"
        f"  traceback : {says}\n"
        "============================================================\n"
    )


LOADER_KILLED: Final = (
    TORCH_FRAMES + "RuntimeError: DataLoader worker (pid 4711) is killed by signal: Killed. "
)
LOADER_BUS: Final = (
    "ERROR: Unexpected bus error encountered in worker. This might be caused by insufficient shared memory (shm).\n"
    + TORCH_FRAMES
    + "RuntimeError: DataLoader worker (pid 4711) is killed by signal: Bus error. It is possible that dataloader's "
    "workers are out of shared memory. Please try to raise your shared memory limit."
)
WRITER: Final = (
    TORCH_FRAMES
    + "RuntimeError: [enforce fail at inline_container.cc:603] . unexpected pos 15488 vs 15382"
)
CUDA_FAULT: Final = TORCH_FRAMES + "RuntimeError: CUDA error: uncorrectable ECC error encountered"
NCCL_REMOTE: Final = (
    TORCH_FRAMES
    + "torch.distributed.DistBackendError: NCCL error in: ../torch/csrc/distributed/c10d/NCCLUtils.hpp:268, remote "
    "process exited or there was a network error, NCCL version 2.20.5"
)


def slurm(why: str) -> str:
    """What slurmstepd prints when it ends a job."""
    return f"slurmstepd: error: *** JOB 4711 ON node-3 CANCELLED AT 2026-11-20T10:00:00 DUE TO {why} ***"


SLURM_OOM: Final = "slurmstepd: error: Detected 1 oom_kill event in StepId=4711.batch. Some of the step tasks have been OOM Killed."
