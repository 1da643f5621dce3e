"""open-unlearning's TOFU sweep on Llama-3.1-8B-Instruct: four objectives without and with GRU."""

from search_spaces.backbones.published import LLAMA31_8B
from search_spaces.schema import open_unlearning

SWEEP = open_unlearning.make_open_unlearning_sweep(LLAMA31_8B, name="tofu_llama31_8b", ranks=8)
