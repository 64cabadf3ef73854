"""What models need of a GPU's memory while they learn, one JSON line each: torch's figures beside the driver's.

Random weights by transformers' configurations; nothing is fetched. Each takes two steps with one short sample,
which shows what does not depend on the batch, then two with the batch that is named.
"""

import gc
import json
import os
import subprocess
import sys
import time
import traceback
from pathlib import Path

VRAM = str(Path(__file__).resolve().parents[3] / "scripts/vram.py")
CASES = (
    # name, kind, width, layers, heads, precision, batch, length, whether activations are computed again
    ("gpt2 124M", "gpt2", 768, 12, 12, "amp", 8, 512, False),
    ("gpt2 355M", "gpt2", 1024, 24, 16, "amp", 8, 512, False),
    ("gpt2 774M", "gpt2", 1280, 36, 20, "amp", 8, 1024, True),
    ("gpt2 1.5B", "gpt2", 1600, 48, 25, "amp", 4, 1024, True),
    ("llama 1.2B bf16", "llama", 2048, 16, 32, "bf16", 4, 2048, False),
    ("llama 1.2B", "llama", 2048, 16, 32, "amp", 4, 2048, True),
    ("bert base", "bert", 768, 12, 12, "fp32", 32, 128, False),
    ("vit base", "vit", 768, 12, 12, "amp", 64, 224, False),
)


def built(kind, width, layers, heads, length):
    """The model, on the GPU. It is made there, because random numbers for a large one take long on a CPU."""
    import torch

    try:
        with torch.device("cuda"):
            return made(kind, width, layers, heads, length)
    except (RuntimeError, NotImplementedError) as error:
        print(f"made on the CPU: {error}", file=sys.stderr)
        return made(kind, width, layers, heads, length).to("cuda")


def made(kind, width, layers, heads, length):
    import transformers as t

    sizes = {"hidden_size": width, "num_hidden_layers": layers, "num_attention_heads": heads}
    if kind == "gpt2":
        return t.GPT2LMHeadModel(
            t.GPT2Config(
                n_embd=width, n_layer=layers, n_head=heads, n_positions=length, use_cache=False
            )
        )
    if kind == "llama":
        more = {"intermediate_size": 4 * width, "max_position_embeddings": length}
        config = t.LlamaConfig(vocab_size=32000, use_cache=False, **more, **sizes)
        return t.LlamaForCausalLM(config)
    if kind == "bert":
        return t.BertForMaskedLM(t.BertConfig(**sizes))
    return t.ViTForImageClassification(t.ViTConfig(**sizes))


def two_steps(model, optimizer, kind, precision, batch, length):
    """Two whole steps were taken. The loss of the last."""
    import torch

    if kind == "vit":
        given = {
            "pixel_values": torch.randn(batch, 3, length, length, device="cuda"),
            "labels": torch.zeros(batch, dtype=torch.long, device="cuda"),
        }
    else:
        words = torch.randint(0, 20000, (batch, length), device="cuda")
        given = {"input_ids": words, "labels": words}
    for _ in range(2):
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cuda", torch.bfloat16, enabled=precision == "amp"):
            loss = model(**given).loss
        loss.backward()
        optimizer.step()
    torch.cuda.synchronize()
    return float(loss.detach())


def measured(name, kind, width, layers, heads, precision, batch, length, again):
    import torch

    began = time.monotonic()
    model = built(kind, width, layers, heads, length)
    model = model.to(torch.bfloat16 if precision == "bf16" else torch.float32).train()
    if again:
        model.gradient_checkpointing_enable()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    told = {
        "model": name,
        "parameters": sum(p.numel() for p in model.parameters()),
        "precision": precision,
        "batch": batch,
        "length": length,
        "checkpointing": again,
        "weights_bytes": torch.cuda.memory_allocated(),
    }
    short = length if kind == "vit" else 16
    torch.cuda.reset_peak_memory_stats()
    two_steps(model, optimizer, kind, precision, 1, short)
    told["held_bytes"] = torch.cuda.memory_allocated()
    told["least_peak_bytes"] = torch.cuda.max_memory_allocated()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    told["loss"] = two_steps(model, optimizer, kind, precision, batch, length)
    told["peak_bytes"] = torch.cuda.max_memory_allocated()
    told["reserved_bytes"] = torch.cuda.memory_reserved()
    told["smi"] = smi()
    told["vram"] = vram()
    told["took_s"] = round(time.monotonic() - began, 1)
    return told


def smi():
    """What the driver counts: for the whole GPU, and for this process."""
    style = "--format=csv,noheader,nounits"
    used = output("nvidia-smi", "--query-gpu=memory.used", style).strip()
    apps = output("nvidia-smi", "--query-compute-apps=pid,used_memory", style)
    mine = [line.split(",")[1].strip() for line in apps.splitlines() if pid_of(line)]
    return {"used_mib": used, "mine_mib": mine}


def pid_of(line):
    return line.split(",")[0].strip() == str(os.getpid())


def vram():
    """What `scripts/vram.py` says of this process."""
    said = output(sys.executable, "-I", "-S", VRAM)
    reply = json.loads(said.splitlines()[-1])
    gpu = reply["gpus"][0] if reply.get("gpus") else {}
    mine = [p["mib"] for p in gpu.get("processes", ()) if p["pid"] == os.getpid()]
    told = ("used_mib", "ours_mib", "not_ours_mib", "nobody_visible_mib", "unseen_pids", "words")
    return {"mine_mib": mine, **{name: gpu.get(name) for name in told}}


def output(*words):
    done = subprocess.run(words, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, timeout=30)
    return done.stdout.decode("utf-8", "replace")


def main():
    import torch

    for case in CASES:
        try:
            told = measured(*case)
        except Exception:  # noqa: BLE001  (one that does not fit stops no other)
            told = {"model": case[0], "error": traceback.format_exc()[-1500:]}
        print(json.dumps(told), flush=True)
        gc.collect()
        torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
