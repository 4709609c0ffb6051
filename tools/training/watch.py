"""How busy a GPU is while a model trains: figures of NVML, and what to change, in the words of `doctor --bottleneck`.

In go the samples that `nvidia-smi` prints, one each two seconds; out come a line and a verdict. Targets are those of
src/advice.rs. Without a GPU there is nothing to say: the limit of a CPU is the model.
"""

import subprocess
import threading

import torch

GPU_TARGET = (75, 95)
MEMORY_TARGET = (80, 95)
FEW_SAMPLES = 5  # fewer say little: in the first seconds a run only starts
EVERY = 2  # seconds
FIELDS = "utilization.gpu,memory.used,memory.total,power.draw"


class GpuWatch:
    """Reads figures of a GPU until it is closed. Where NVML says nothing, neither does this."""

    def __init__(self, uuid: str | None):
        self.samples: list[tuple[float, ...]] = []
        self.process = None
        if uuid is None:
            return
        command = ["nvidia-smi", f"--id={uuid}", f"--query-gpu={FIELDS}", "--format=csv,noheader,nounits"]
        command.append(f"--loop={EVERY}")
        try:
            self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        except OSError:
            return
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()

    def read(self) -> None:
        """Take what is printed; a field that a GPU does not have ends it."""
        for line in self.process.stdout:
            try:
                self.samples.append(tuple(float(field) for field in line.split(",")))
            except ValueError:
                return

    def close(self) -> None:
        """No more figures."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.reader.join()
            self.process.stdout.close()

    def lines(self, name: str) -> list[str]:
        """The figures and the verdict, for people; none where there are few figures."""
        if len(self.samples) < FEW_SAMPLES:
            return []
        busy = sum(sample[0] for sample in self.samples) / len(self.samples)
        used, total = max(sample[1] for sample in self.samples), self.samples[0][2]
        watts = sum(sample[3] for sample in self.samples) / len(self.samples)
        percent = 100 * used / total
        missed = [*miss("GPU", busy, GPU_TARGET), *miss("memory", percent, MEMORY_TARGET)]
        end = ", ".join(missed) or "on target"
        memory = f"memory {used / 1024:.0f} of {total / 1024:.0f} GiB"
        return [f"cuda:0 {name}: GPU {busy:.0f} %, {memory}, {watts:.0f} W: {end}", verdict(busy, percent)]


def miss(what: str, percent: float, target: tuple[int, int]) -> list[str]:
    """`GPU under 75 %`, or nothing."""
    least, most = target
    if round(percent) < least:
        return [f"{what} under {least} %"]
    return [f"{what} over {most} %"] if round(percent) > most else []


def verdict(busy: float, memory: float) -> str:
    """What limits, and which flag to change."""
    if round(busy) < GPU_TARGET[0]:
        limit = "The limit is making batches ready for the GPU."
        if round(memory) < MEMORY_TARGET[0]:
            return f"{limit} What helps: larger micro-batches (`--tokens`; a step can be larger, too: `--batch`)."
        return f"{limit} What helps: `--checkpointing` with larger micro-batches (`--tokens`)."
    if round(memory) > MEMORY_TARGET[1]:
        return "The limit is the model. A longer text may not fit: lower `--tokens`, or add `--checkpointing`."
    return "The limit is the model. What helps: `--freeze-layers`, fewer `--max-tokens`, or several GPUs."


def watch() -> GpuWatch:
    """Of the GPU that trains, if there is one."""
    if not torch.cuda.is_available():
        return GpuWatch(None)
    return GpuWatch(f"GPU-{torch.cuda.get_device_properties(0).uuid}")
