"""trainables.export --settings, and --set @FILE: a trial's settings give the same trial again in its sweep."""

from pathlib import Path

import pytest
import yaml

from tests.support import small_sweep
from tests.support.small_sweep import MakePlan
from trainables.trial.export import settings_file

make = small_sweep.plan_objectives

TUNED = Path(__file__).parents[3] / "tuned"
GIVEN = (
    "method=npo rectifier.name=none,gru,clip",
    "method=ga rectifier.name=hamu_q,gem,agem",
    "method=npo rectifier.name=pcgrad rectifier.memory=average rectifier.gamma=0.3",
    "method=simnpo_gd,idk_dpo objective.retain_coefficient=2 objective.preset=open-unlearning rectifier.name=none",
    "method=gd training.lr=3e-5 training.max_steps=7 training.betas=0.5,0.9 training.eval_every=3 rectifier.name=gru",
)


@pytest.mark.parametrize("given", GIVEN)
def test_the_settings_of_a_trial_give_it_again(make: MakePlan, given: str, tmp_path: Path) -> None:
    trials = make(*given.split()).trials
    assert trials
    for trial in trials:
        file = tmp_path / "settings.yaml"
        result = {"id": trial.id(), "metrics": {}, "commit": "abc1234"}
        settings_file.write_reusable_settings(result, trial, file)
        again = make(f"@{file}", f"benchmark.split={trial.benchmark.split}", f"seed={trial.seed}").trials
        assert [one.id() for one in again] == [trial.id()], file.read_text()


@pytest.mark.parametrize("file", sorted(TUNED.glob("*.yaml")), ids=lambda file: file.name)
def test_a_file_of_tuned_is_one_trial(make: MakePlan, file: Path) -> None:
    (trial,) = (plan := make(f"@{file}", "benchmark.split=forget05")).trials
    assert [line for line in plan.warnings if line.split(":")[0] in plan.sweep.typed and "batches" not in line] == []
    assert settings_file.list_training_settings(trial) == yaml.safe_load(file.read_text())["settings"]
