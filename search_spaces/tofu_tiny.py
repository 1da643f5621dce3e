"""A Llama of 1.4M parameters on the real TOFU rows: the paper's comparison on a CPU."""

from search_spaces.schema.sweep import SMALL_MODEL_TRU_STRENGTHS, PublishedSetting, SmallModelRecipe, Sweep
from trainables.config.settings import Benchmark, TaskVector, Training

SWEEP = Sweep(
    name="tofu_tiny",
    title="TOFU on a 1.4M-parameter Llama: nine objectives without and with GRU; TV and TRU without retain data",
    axes={
        "method": ("ga", "ga_kl", "gd", "wga", "npo", "npo_kl", "npo_gd", "simnpo", "simnpo_gd", "tv", "tru"),
        "benchmark.split": ("forget01", "forget05", "forget10"),
        "task_vector.stg": SMALL_MODEL_TRU_STRENGTHS,
        "task_vector.strength": (50.0, 100.0, 150.0, 200.0, 300.0),
    },
    published=(
        PublishedSetting(gamma=0.8, tau=None),
        PublishedSetting(method="gd", gamma=0.05, tau=None),
        PublishedSetting(method="tru", strength=12.0),
        PublishedSetting(method="tv", strength=150.0),
    ),
    benchmark=Benchmark(dialect="paper", template="llama2"),
    training=Training(lr=1e-4, epochs=5, batch_size=32),  # at 2e-4 GA on forget05 keeps a third of MU, at 4e-4 nothing
    task_vector=TaskVector(steps=5, lr=1e-2, batches=20),
    observe=2,
    model_training=SmallModelRecipe(
        architecture=(
            ("hidden_size", 128),
            ("intermediate_size", 384),
            ("num_hidden_layers", 4),
            ("num_attention_heads", 4),
        ),
        vocabulary=2048,
        pretraining=Training(lr=2e-3, epochs=13, schedule="linear", warmup_steps=50),
        pretraining_configs=("retain90", "real_authors", "world_facts"),
        finetuning=Training(lr=1e-3, epochs=6, schedule="linear"),
    ),
)
