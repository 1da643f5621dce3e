"""Table 1 of the paper on Llama-2-7B-chat: TRU and TV against objectives that use no retain data.

The paper gives stg and lr, and leaves T and the batches open. Its vectors are normalised "so that their magnitudes are
equal to 1": `whole`. Whole unit vectors moved a small model by next to nothing at these stg and no 7B model has been
measured, so that `per_tensor`, where each tensor has length 1, is our axis beside it (docs/reproduction.md).
"""

from search_spaces.backbones.published import LLAMA2_7B_CHAT
from search_spaces.schema import paper
from search_spaces.schema.sweep import SMALL_GAMMA_GRID, SMALL_TAU_GRID, Axis, PublishedSetting
from trainables.config.settings import TaskVector

TRU_TASK_VECTOR = TaskVector(steps=5, lr=1e-4, batches=20, normalise="per_tensor", optimizer="adamw")
"""AdamW as in all the paper's runs: TV has no unit length, and five plain gradient steps at this lr move nothing."""
RETAIN_FREE_AXES: dict[str, Axis] = {
    "method": ("tv", "ga", "wga", "npo", "tru"),
    "benchmark.split": paper.SPLITS,
    "rectifier.name": ("none",),
    "rectifier.gamma": SMALL_GAMMA_GRID,
    "rectifier.tau": SMALL_TAU_GRID,
    "task_vector.strength": (1.0, 2.0, 5.0, 10.0, 20.0),  # MUSE's task vector is subtracted five times over
    "task_vector.normalise": ("whole", "per_tensor"),
}

SWEEP = paper.make_paper_sweep(
    LLAMA2_7B_CHAT,
    name="tofu_llama_tru",
    title="TOFU on Llama-2-7B-chat without retain data: TRU and TV, GA, WGA, NPO",
    axes=RETAIN_FREE_AXES,
    published=(
        PublishedSetting(method="tru", split="forget05", strength=0.65, normalise="whole"),
        PublishedSetting(method="tru", split="forget10", strength=0.85, normalise="whole"),
        PublishedSetting(method="tv", strength=5.0),
    ),
    task_vector=TRU_TASK_VECTOR,
)
