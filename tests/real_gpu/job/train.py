"""Train a small language model on the GPU for so many seconds, with checkpoints: a job as a tenant would launch it.

python3 train.py --seconds 30          on the GPU
python3 train.py --smoke               two steps on whatever is there
python3 train.py --pretend             without torch: the same files and lines, and nothing learnt
"""

import argparse
import json
import os
import struct
import time
from pathlib import Path

SAVES = 3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--smoke", action="store_true")
    parser.add_argument("--pretend", action="store_true")
    asked = parser.parse_args()
    out = Path("out")
    out.mkdir(exist_ok=True)
    learner = Pretended() if asked.pretend else Learner()
    print(f"on {learner.where}", flush=True)
    first = learner.step()
    began = time.monotonic()
    for _ in range(1 if asked.smoke else 10):
        loss = learner.step()
    each_s = (time.monotonic() - began) / (1 if asked.smoke else 10)
    steps = 2 if asked.smoke else max(30, int(asked.seconds / each_s))
    told = max(1, steps // 40)
    saved_at = {steps * n // SAVES for n in range(1, SAVES + 1)}
    for step in range(1, steps + 1):
        loss = learner.step()
        if step % told == 0 or step == steps:
            print(f"step {step}/{steps} loss={loss:.4f}", flush=True)
        if step in saved_at:
            before = time.monotonic()
            learner.save(out, step)
            print(f"saved step {step} in {time.monotonic() - before:.2f} s", flush=True)
    report = {"steps": steps, "first_loss": first, "loss": loss, "step_s": each_s}
    write_whole(out / "report.json", lambda part: part.write_text(json.dumps(report)))
    print("done", flush=True)


def write_whole(path, write):
    """The file appears complete, or not at all."""
    part = path.with_name(path.name + ".tmp")
    write(part)
    with part.open("rb") as file:
        os.fsync(file.fileno())
    part.replace(path)


class Learner:
    """A transformer of some 25 million parameters that learns to count in a cycle."""

    def __init__(self):
        import torch
        from torch import nn

        self.torch = torch
        self.device = "cuda" if torch.cuda.is_available() else "cpu"
        self.where = torch.cuda.get_device_name() if self.device == "cuda" else "the CPU"
        torch.manual_seed(0)
        width, self.words, big = 512, 4096, self.device == "cuda"
        self.batch, self.length = (64, 512) if big else (2, 32)
        layer = nn.TransformerEncoderLayer(
            width, 8, 4 * width, 0.0, "gelu", batch_first=True, norm_first=True
        )
        self.net = nn.ModuleDict(
            {
                "embed": nn.Embedding(self.words, width),
                "layers": nn.TransformerEncoder(layer, 6, enable_nested_tensor=False),
                "head": nn.Linear(width, self.words),
            }
        ).to(self.device)
        self.optimizer = torch.optim.AdamW(self.net.parameters(), lr=3e-4)

    def step(self):
        torch = self.torch
        starts = torch.randint(0, self.words, (self.batch, 1), device=self.device)
        text = (starts + torch.arange(self.length + 1, device=self.device)) % self.words
        with torch.autocast(self.device, torch.bfloat16):
            hidden = self.net["layers"](self.net["embed"](text[:, :-1]))
            logits = self.net["head"](hidden)
            loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), text[:, 1:].flatten())
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self.optimizer.step()
        return float(loss.detach())

    def save(self, out, step):
        weights = {name: value.cpu().clone() for name, value in self.net.state_dict().items()}
        try:
            from safetensors.torch import save_file

            write_whole(out / f"step-{step}.safetensors", lambda part: save_file(weights, part))
        except ImportError:
            print("safetensors is not here: the weights are saved as .pt alone", flush=True)
            write_whole(out / f"step-{step}.pt", lambda part: self.torch.save(weights, part))
        state = {"net": weights, "optimizer": self.optimizer.state_dict(), "step": step}
        write_whole(out / "resume.pt", lambda part: self.torch.save(state, part))


class Pretended:
    """It has no model: only the lines and the files are as they would be."""

    where = "nothing: this is pretended"

    def __init__(self):
        self.steps = 0

    def step(self):
        time.sleep(0.02)
        self.steps += 1
        return 8.0 / self.steps

    def save(self, out, step):
        header = {"w": {"dtype": "F32", "shape": [256], "data_offsets": [0, 1024]}}
        text = json.dumps(header).encode()
        text += b" " * (-len(text) % 8)
        content = struct.pack("<Q", len(text)) + text + struct.pack("<256f", *range(256))
        write_whole(out / f"step-{step}.safetensors", lambda part: part.write_bytes(content))


if __name__ == "__main__":
    main()
