"""Trains one small model for two steps, on the CPU or on a GPU: `trains.py CASE cpu` or `trains.py CASE cuda`.

It is an ordinary training script, and knows nothing of who measures it on the CPU. On a GPU it prints what
that GPU's memory held at most, by torch and by the driver, as JSON. Weights are random, nothing is fetched.
"""

import json
import os
import subprocess
import sys
import time

CASES = {
    # name: (model, its sizes, optimizer, precision, batch, length, what else)
    "gpt2-124m-fp32": ("gpt2", (768, 12), "adamw", "fp32", 2, 512, ""),
    "gpt2-124m-amp": ("gpt2", (768, 12), "adamw", "amp", 4, 512, ""),
    "vit-small-fp32": ("vit", (384, 12), "adamw", "fp32", 32, 224, ""),
    "vit-base-amp": ("vit", (768, 12), "adamw", "amp", 16, 224, ""),
    "llama-150m-amp": ("llama", (768, 12), "adamw", "amp", 4, 512, ""),
    "llama-110m-amp-fused": ("llama", (640, 12), "fused", "amp", 8, 512, ""),
    "bert-base-fp32": ("bert", (768, 12), "adamw", "fp32", 12, 128, ""),
    "bert-base-amp": ("bert", (768, 12), "adamw", "amp", 32, 128, ""),
    "resnet50-fp32": ("resnet", (50,), "sgd", "fp32", 32, 224, ""),
    "resnet50-amp": ("resnet", (50,), "adamw", "amp", 48, 224, ""),
    "t5-small-fp32-adafactor": ("t5", (512, 6), "adafactor", "fp32", 8, 256, ""),
    "t5-base-amp": ("t5", (768, 12), "adamw", "amp", 6, 256, ""),
    "unet-31m-amp": ("unet", (64,), "adamw", "amp", 4, 256, ""),
    "unet-31m-fp32": ("unet", (64,), "adamw", "fp32", 2, 256, ""),
    "lstm-50m-adam": ("lstm", (1024, 4), "adam", "fp32", 16, 128, ""),
    "lstm-19m-sgd": ("lstm", (640, 3), "sgd", "fp32", 32, 96, ""),
    "mlp-120m-adamw": ("mlp", (4096, 8), "adamw", "fp32", 1024, 512, ""),
    "mlp-5m-sgd": ("mlp", (1024, 6), "sgd", "fp32", 16384, 256, ""),
    "llama-280m-bf16": ("llama", (1024, 16), "adamw", "bf16", 2, 512, ""),
    "llama-350m-bf16-adafactor-ckpt": ("llama", (1024, 20), "adafactor", "bf16", 1, 512, "again"),
    "convnext-tiny-fp32": ("convnext", (96,), "adamw", "fp32", 8, 224, ""),
    "convnext-base-amp": ("convnext", (128,), "adamw", "amp", 8, 224, ""),
    "whisper-tiny-fp32": ("whisper", (384, 4), "adamw", "fp32", 2, 3000, ""),
    "whisper-base-amp": ("whisper", (512, 6), "adamw", "amp", 2, 3000, ""),
    "gpt2-355m-amp-ckpt": ("gpt2", (1024, 24), "adamw", "amp", 1, 512, "again"),
    "vit-large-bf16-ckpt": ("vit", (1024, 24), "adamw", "bf16", 8, 224, "again"),
    "encoder-60m-amp-lion": ("encoder", (768, 8), "lion", "amp", 8, 256, ""),
    "encoder-30m-fp32-sgd": ("encoder", (512, 8), "sgd", "fp32", 8, 256, ""),
    "bert-base-frozen-fp32": ("bert", (768, 12), "adamw", "fp32", 8, 128, "frozen"),
    "gpt2-85m-bf16-accumulated": ("gpt2", (640, 10), "adamw", "bf16", 2, 512, "accumulated"),
}
"""In turn one by which constants were chosen, and one by which they were then tested."""


def made(kind, sizes, length):
    import transformers as t

    if kind in ("gpt2", "llama", "bert", "t5", "vit", "whisper"):
        width, layers = sizes
        heads = width // 64
        some = {"hidden_size": width, "num_hidden_layers": layers, "num_attention_heads": heads}
    if kind == "gpt2":
        config = t.GPT2Config(n_embd=width, n_layer=layers, n_head=heads, use_cache=False)
        return t.GPT2LMHeadModel(config)
    if kind == "llama":
        more = {"intermediate_size": 8 * width // 3 // 64 * 64, "use_cache": False}
        return t.LlamaForCausalLM(t.LlamaConfig(vocab_size=32000, **more, **some))
    if kind == "bert":
        return t.BertForMaskedLM(t.BertConfig(intermediate_size=4 * width, **some))
    if kind == "t5":
        more = {"d_ff": 4 * width, "num_heads": heads, "decoder_start_token_id": 0}
        config = t.T5Config(d_model=width, num_layers=layers, use_cache=False, **more)
        return t.T5ForConditionalGeneration(config)
    if kind == "vit":
        config = t.ViTConfig(intermediate_size=4 * width, image_size=length, **some)
        config.num_labels = 100
        return t.ViTForImageClassification(config)
    if kind == "whisper":
        more = {"encoder_ffn_dim": 4 * width, "decoder_ffn_dim": 4 * width}
        more |= {"encoder_attention_heads": heads, "decoder_attention_heads": heads}
        config = t.WhisperConfig(
            d_model=width, encoder_layers=layers, decoder_layers=layers, use_cache=False, **more
        )
        return t.WhisperForConditionalGeneration(config)
    if kind == "resnet":
        return t.ResNetForImageClassification(t.ResNetConfig(num_labels=100))
    if kind == "convnext":
        widths = [sizes[0] * 2**each for each in range(4)]
        depths = [3, 3, 9 if sizes[0] < 100 else 27, 3]
        config = t.ConvNextConfig(hidden_sizes=widths, depths=depths, num_labels=100)
        return t.ConvNextForImageClassification(config)
    return plain(kind, *sizes, length=length)


def plain(kind, width, layers=0, *, length):
    """A model of torch alone."""
    import torch
    from torch import nn

    class Words(nn.Module):
        """Words in, words out, over something between."""

        def __init__(self, between):
            super().__init__()
            self.of = nn.Embedding(20000, width)
            self.between = between
            self.out = nn.Linear(width, 20000)

        def forward(self, words):
            seen = self.between(self.of(words))
            return self.out(seen[0] if isinstance(seen, tuple) else seen)

    if kind == "lstm":
        return Words(nn.LSTM(width, width, layers, batch_first=True, dropout=0.1))
    if kind == "encoder":
        layer = nn.TransformerEncoderLayer(width, width // 64, 4 * width, 0.1, batch_first=True)
        return Words(nn.TransformerEncoder(layer, layers, enable_nested_tensor=False))
    if kind == "mlp":
        inner = [part for _ in range(layers - 1) for part in (nn.Linear(width, width), nn.GELU())]
        return nn.Sequential(nn.Linear(length, width), nn.GELU(), *inner, nn.Linear(width, 10))

    def twice(some, more):
        parts = [nn.Conv2d(some, more, 3, padding=1), nn.BatchNorm2d(more), nn.ReLU(inplace=True)]
        parts += [nn.Conv2d(more, more, 3, padding=1), nn.BatchNorm2d(more), nn.ReLU(inplace=True)]
        return nn.Sequential(*parts)

    class UNet(nn.Module):
        def __init__(self):
            super().__init__()
            wide = [width * 2**each for each in range(5)]
            self.down = nn.ModuleList(map(twice, [3, *wide[:-1]], wide))
            self.up = nn.ModuleList(
                nn.ConvTranspose2d(b, a, 2, 2)
                for a, b in zip(wide[-2::-1], wide[:0:-1], strict=True)
            )
            self.join = nn.ModuleList(twice(2 * a, a) for a in wide[-2::-1])
            self.out = nn.Conv2d(width, 3, 1)

        def forward(self, x):
            kept = []
            for at, part in enumerate(self.down):
                x = part(x if not at else nn.functional.max_pool2d(x, 2))
                kept.append(x)
            kept.pop()
            for up, join in zip(self.up, self.join, strict=True):
                x = join(torch.cat([kept.pop(), up(x)], 1))
            return self.out(x)

    return UNet()


def batch_of(kind, batch, length, device, dtype):
    """What the model is called with, and how its loss is had."""
    import torch
    from torch.nn import functional as F

    def some(*shape):
        return torch.randn(*shape, device=device, dtype=dtype)

    def words(length=length):
        return torch.randint(5, 20000, (batch, length), device=device)

    if kind in ("gpt2", "llama", "bert"):
        given = words()
        return {"input_ids": given, "labels": given}, None
    if kind == "t5":
        return {"input_ids": words(), "labels": words(length // 2)}, None
    if kind in ("vit", "resnet", "convnext"):
        labels = torch.zeros(batch, dtype=torch.long, device=device)
        return {"pixel_values": some(batch, 3, length, length), "labels": labels}, None
    if kind == "whisper":
        return {"input_features": some(batch, 80, length), "labels": words(128)}, None
    if kind in ("lstm", "encoder"):
        given = words()
        return given, lambda out: F.cross_entropy(out.flatten(0, 1).float(), given.flatten())
    if kind == "mlp":
        target = torch.zeros(batch, dtype=torch.long, device=device)
        return some(batch, length), lambda out: F.cross_entropy(out.float(), target)
    images = some(batch, 3, length, length)
    return images, lambda out: F.mse_loss(out.float(), images.float())


def optimizer_of(name, parameters):
    import torch

    parameters = [p for p in parameters if p.requires_grad]
    if name in ("adamw", "fused"):
        return torch.optim.AdamW(
            parameters, lr=1e-4, **({"fused": True} if name == "fused" else {})
        )
    if name == "adam":
        return torch.optim.Adam(parameters, lr=1e-4)
    if name == "sgd":
        return torch.optim.SGD(parameters, lr=1e-3, momentum=0.9)
    if name == "adafactor":
        from transformers.optimization import Adafactor

        return Adafactor(parameters, lr=1e-4, relative_step=False, scale_parameter=False)

    class Lion(torch.optim.Optimizer):
        def __init__(self, parameters, lr=1e-4):
            super().__init__(parameters, {"lr": lr})

        @torch.no_grad()
        def step(self, closure=None):
            for group in self.param_groups:
                for p in group["params"]:
                    if p.grad is None:
                        continue
                    kept = self.state[p].setdefault("mean", torch.zeros_like(p))
                    p.add_((kept * 0.9 + p.grad * 0.1).sign_(), alpha=-group["lr"])
                    kept.lerp_(p.grad, 0.01)

    return Lion(parameters)


def main(name, device):
    import torch

    kind, sizes, optimizing, precision, batch, length, more = CASES[name]
    torch.manual_seed(0)
    dtype = torch.bfloat16 if precision == "bf16" else torch.float32
    model = made(kind, sizes, length).to(device=device, dtype=dtype).train()
    if more == "again":
        model.gradient_checkpointing_enable()
    if more == "frozen":
        for p in model.bert.parameters():
            p.requires_grad_(False)
    optimizer = optimizer_of(optimizing, model.parameters())
    phases = []
    for step in range(2):
        began = time.monotonic()
        optimizer.zero_grad()
        for _ in range(2 if more == "accumulated" else 1):
            given, judged = batch_of(kind, batch, length, device, dtype)
            with torch.autocast(device, torch.bfloat16, enabled=precision == "amp"):
                out = model(**given) if judged is None else model(given)
                loss = out.loss if judged is None else judged(out)
            loss.backward()
        phases += reached(torch, device)
        optimizer.step()
        phases += reached(torch, device)
        loss = loss.item()
        print(f"step {step}: loss {loss:.4f} in {time.monotonic() - began:.2f} s", flush=True)
    if device != "cuda":
        return
    torch.cuda.synchronize()
    parameters = sum(p.numel() for p in model.parameters())
    print(json.dumps({"case": name, "parameters": parameters, "loss": loss, **seen(torch, phases)}))


def reached(torch, device):
    """What torch held at most since it was last asked. Nothing on a CPU."""
    if device != "cuda":
        return []
    peak = torch.cuda.max_memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    return [peak]


def seen(torch, phases):
    style = "--format=csv,noheader,nounits"
    apps = output("nvidia-smi", "--query-compute-apps=pid,used_memory", style)
    rows = [[word.strip() for word in line.split(",")] for line in apps.splitlines()]
    free, total = torch.cuda.mem_get_info()
    return {
        "torch": torch.__version__,
        "peak_bytes": max(phases),
        "phases": phases,
        "reserved_bytes": torch.cuda.memory_reserved(),
        "smi_mib": [row[1] for row in rows if row[0] == str(os.getpid())],
        "smi_all_mib": [row[1] for row in rows],
        "taken_bytes": total - free,
        "gpu": torch.cuda.get_device_name(),
    }


def output(*words):
    try:
        done = subprocess.run(words, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, timeout=30)
    except OSError:
        return ""
    return done.stdout.decode("utf-8", "replace")


if __name__ == "__main__":
    main(*sys.argv[1:3])
