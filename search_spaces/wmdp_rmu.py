"""The paper's comparison with RMU on WMDP: RMU without and with GRU.

The paper gives alpha alone; layer, steering, batches, steps and lr are of RMU's authors for Zephyr. Retain texts, the
control vector and batches are not theirs (docs/reproduction.md), so that a trial is no reproduction of Zephyr_RMU.
"""

from search_spaces.backbones.published import ZEPHYR_7B
from search_spaces.schema import paper
from search_spaces.schema.sweep import PublishedSetting
from search_spaces.wmdp_zephyr import WMDP
from trainables.config.settings import Objective, Training

SWEEP = paper.make_paper_sweep(
    ZEPHYR_7B,
    ranks=1,
    name="wmdp_rmu",
    title="WMDP on Zephyr-7B-beta: RMU without and with GRU",
    axes={"method": ("rmu",)},
    published=(PublishedSetting(gamma=0.99, tau=None),),
    benchmark=WMDP,
    objective=Objective(layer=7, steering=6.5, alpha=100.0),
    training=Training(lr=5e-5, epochs=150, max_steps=150, batch_size=4, max_length=512),
)
