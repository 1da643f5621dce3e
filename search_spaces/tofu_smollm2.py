"""TOFU on a pretrained chat model of 135M parameters: five objectives without a rectifier, with GRU and the bisector.

Target and retain models are fine-tuned once, from one base. Which rates a model of this size needs: docs/smollm2.
"""

from search_spaces.backbones.published import SMOLLM2_135M
from search_spaces.schema.sweep import SMALL_TAU_GRID, StressTestSettings, Sweep
from trainables.config.settings import Benchmark, Resources, Selection, Training

SWEEP = Sweep(
    name="tofu_smollm2",
    title="TOFU on SmolLM2-135M-Instruct: five objectives without a rectifier, with GRU and with the bisector",
    backbone=SMOLLM2_135M,
    axes={
        "method": ("npo_gd", "npo", "gd", "simnpo_gd", "ga"),
        "benchmark.split": ("forget05", "forget01"),
        "rectifier.name": ("none", "gru", "bisector"),
        "rectifier.gamma": (0.8,),
        "rectifier.tau": SMALL_TAU_GRID,
        "training.lr": (3e-5, 1e-5, 1e-4),
    },
    searched=("training.lr",),
    benchmark=Benchmark(dialect="open-unlearning", template="chat", measures=("all",)),
    training=Training(lr=3e-5, epochs=5, batch_size=32, schedule="linear", warmup_epochs=1),
    selection=Selection(halves=True),
    stress=StressTestSettings(attacks=("relearn_half", "nf4", "paraphrase"), lr=1e-4),
    resources=Resources(gpus=1, share_gpus=True, cpus=2, precision="bf16", gpu_memory=80),
)
