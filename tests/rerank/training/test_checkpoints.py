"""Which checkpoints a training goes on from, and which are averaged, on folders made by hand."""

from __future__ import annotations

from pathlib import Path

import torch
from safetensors.torch import save_file

from rerank.training.trainer import last_whole, load_mean


def checkpoint(folder: Path, step: int, *, weight: float = 0.0, state: str = "{}") -> Path:
    """A checkpoint with one weight and the file that is written last."""
    made = folder / f"checkpoint-{step}"
    made.mkdir(parents=True)
    save_file({"weight": torch.full((1, 1), weight)}, made / "model.safetensors")
    (made / "trainer_state.json").write_text(state)
    return made


def test_the_last_whole_one_is_found(tmp_path: Path) -> None:
    """One that a kill cut short goes, whether it was being written or deleted."""
    assert last_whole(tmp_path) is None
    whole = checkpoint(tmp_path, 90)
    torn, emptied = checkpoint(tmp_path, 100, state='{"ste'), checkpoint(tmp_path, 80)
    (emptied / "model.safetensors").unlink()
    assert last_whole(tmp_path) == str(whole)
    assert not torn.exists()
    assert not emptied.exists()


def test_the_mean_is_of_the_last_ones_by_their_steps(tmp_path: Path) -> None:
    """An older one, which a kill kept from being deleted, does not count."""
    for step, weight in ((80, 100.0), (90, 1.0), (100, 2.0), (110, 6.0)):
        checkpoint(tmp_path, step, weight=weight)
    model = torch.nn.Linear(1, 1, bias=False)
    for count, mean in ((2, 4.0), (3, 3.0)):
        load_mean(model, tmp_path, count)
        assert model.weight.item() == mean
