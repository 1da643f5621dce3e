"""The paper's comparison with RMU on WMDP: RMU without and with GRU.

The paper sets alpha to 100 and gives no other setting. Of RMU's authors for Zephyr are layer 7, steering 6.5, batches
of 4 texts, 150 steps at 5e-5 (20 of 4e-6, the paper's for WMDP, move a weight by 8e-5 at most); their alpha is 1200.
The rest is the setting of the other objectives here, and not theirs:

|                  | RMU's authors                       | here                                |
|------------------|-------------------------------------|-------------------------------------|
| retain texts     | wikitext                            | WMDP's bio and cyber retain corpora |
| control vector   | one a topic                         | one, drawn from the trial's seed    |
| batches          | of one topic, bio and cyber in turn | mixed, drawn from both topics       |
| tokens of a text | up to 512 (bio), 768 (cyber)        | up to 512                           |

So a trial is no reproduction of their published Zephyr_RMU. gamma is the paper's for WMDP, without clipping.
"""

from search_spaces.backbones.zephyr import ZEPHYR
from search_spaces.schema import paper
from search_spaces.schema.sweep import Published
from search_spaces.wmdp_zephyr import DATA
from trainables.config.settings import Objective, Training

SWEEP = paper.sweep(
    ZEPHYR,
    ranks=1,
    name="wmdp_rmu",
    title="WMDP on Zephyr-7B-beta: RMU without and with GRU",
    tables=("wmdp_rmu",),
    axes={"method": ("rmu",)},
    published=(Published(gamma=0.99, tau=None),),
    benchmark=DATA,
    objective=Objective(layer=7, steering=6.5, alpha=100.0),
    training=Training(lr=5e-5, epochs=150, max_steps=150, batch_size=4, max_length=512),
)
