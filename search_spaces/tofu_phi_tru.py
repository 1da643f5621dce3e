"""Table 1 of the paper on Phi-1.5: TRU and TV against objectives that use no retain data."""

from search_spaces.backbones.published import PHI_1_5
from search_spaces.schema import paper
from search_spaces.schema.sweep import PublishedSetting
from search_spaces.tofu_llama_tru import RETAIN_FREE_AXES, TRU_TASK_VECTOR

SWEEP = paper.make_paper_sweep(
    PHI_1_5,
    name="tofu_phi_tru",
    title="TOFU on Phi-1.5 without retain data: TRU and TV, GA, WGA, NPO",
    axes=RETAIN_FREE_AXES,
    published=(
        PublishedSetting(method="tru", split="forget05", strength=0.70, normalise="whole"),
        PublishedSetting(method="tru", split="forget10", strength=0.75, normalise="whole"),
        PublishedSetting(method="tv", strength=5.0),
    ),
    task_vector=TRU_TASK_VECTOR,
)
