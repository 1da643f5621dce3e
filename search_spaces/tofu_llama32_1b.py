"""open-unlearning's TOFU sweep on Llama-3.2-1B-Instruct: four objectives without and with GRU."""

from search_spaces.backbones.published import LLAMA32_1B
from search_spaces.schema import open_unlearning

SWEEP = open_unlearning.make_open_unlearning_sweep(LLAMA32_1B, name="tofu_llama32_1b")
