"""The whole path in a minute without any file: fictional authors, two tiny models, GA, GD and NPO with GRU."""

from search_spaces.schema.sweep import FictionalAuthorsSettings, PublishedSetting, SmallModelRecipe, Sweep
from trainables.config.settings import Benchmark, Training

SWEEP = Sweep(
    name="quickstart",
    title="Fictional authors, a 0.3M-parameter Llama: GA, GD, NPO without and with GRU",
    axes={"method": ("ga", "gd", "npo"), "benchmark.split": ("forget10",)},
    published=(PublishedSetting(gamma=0.8, tau=None), PublishedSetting(method="gd", gamma=0.05, tau=None)),
    benchmark=Benchmark(dialect="paper", template="llama2"),
    training=Training(lr=5e-4, epochs=5, batch_size=16, max_length=128),
    fictional=FictionalAuthorsSettings(authors=30, questions=15),
    observe=2,
    model_training=SmallModelRecipe(
        architecture=(
            ("hidden_size", 96),
            ("intermediate_size", 256),
            ("num_hidden_layers", 2),
            ("num_attention_heads", 4),
            ("tie_word_embeddings", True),
            ("initializer_range", 0.08),
        ),
        vocabulary=1200,
        finetuning=Training(
            lr=5e-3, epochs=20, batch_size=16, betas=(0.9, 0.98), schedule="linear", warmup_steps=80, max_length=512
        ),
    ),
)
