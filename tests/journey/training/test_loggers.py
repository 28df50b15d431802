"""Our numbers reach TensorBoard, MLflow and Weights & Biases through the frameworks' own logging, without the network.

Each training runs in a process of its own, as a user's does, on a virtual clock. Its logger's files are then read with
the logger's own reader, and compared with what the callback said.
"""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest

from support.programs import python_env, run_python

pytestmark = [pytest.mark.peers, pytest.mark.filterwarnings("default")]  # what loggers warn of is theirs
NAMES = {
    *("zeus/joules_per_step", "zeus/joules_per_sample", "zeus/watts", "zeus/joules"),
    *("zeus/kwh", "zeus/money", "zeus/gco2e"),
}
HUGGINGFACE = """
import torch
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments
from zeus.training.huggingface import EnergyCallback

class Data(torch.utils.data.Dataset):
    def __len__(self):
        return 160
    def __getitem__(self, index):
        return {"input_ids": torch.tensor([index % 20] * 4), "labels": index % 2}

config = BertConfig(
    vocab_size=20, hidden_size=8, num_hidden_layers=1, num_attention_heads=1, intermediate_size=8, num_labels=2
)
arguments = TrainingArguments(
    output_dir="out", run_name="toy", per_device_train_batch_size=8, num_train_epochs=1,
    logging_steps=5, report_to=[LOGGER], save_strategy="no", disable_tqdm=True, use_cpu=True,
    dataloader_pin_memory=False,
)
trainer = Trainer(BertForSequenceClassification(config), arguments, train_dataset=Data(), callbacks=[EnergyCallback()])
trainer.train()
said = [row for row in trainer.state.log_history if "zeus/joules_per_step" in row]
"""
LIGHTNING = """
import torch
from lightning.pytorch import LightningModule, Trainer
from zeus.training.lightning import EnergyCallback

class Model(LightningModule):
    def __init__(self):
        super().__init__()
        self.line = torch.nn.Linear(1, 1)
    def training_step(self, batch, index):
        return self.line(batch[0]).square().mean()
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)

def logger():
    if LOGGER == "tensorboard":
        from lightning.pytorch.loggers import TensorBoardLogger
        return TensorBoardLogger("logs", name="toy")
    if LOGGER == "mlflow":
        from lightning.pytorch.loggers import MLFlowLogger
        return MLFlowLogger(tracking_uri=os.environ["MLFLOW_TRACKING_URI"])
    from lightning.pytorch.loggers import WandbLogger
    return WandbLogger(project="toy", offline=True)

said = []
class Seen(EnergyCallback):
    def on_train_batch_end(self, trainer, module, outputs, batch, index):
        super().on_train_batch_end(trainer, module, outputs, batch, index)
        found = {name: float(value) for name, value in trainer.logged_metrics.items() if name.startswith("zeus/")}
        if trainer.global_step % 5 == 0 and self._run.energy_values():
            said.append(self._run.energy_values())

data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.ones(160, 1)), batch_size=8)
trainer = Trainer(
    max_epochs=1, logger=logger(), callbacks=[Seen()], log_every_n_steps=5, accelerator="cpu",
    enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
)
trainer.fit(Model(), data)
"""
END = """
import json
if LOGGER == "wandb":
    import wandb
    summary = {name: wandb.run.summary[name] for name in wandb.run.summary.keys() if "zeus/" in name}
    open("summary.json", "w").write(json.dumps(summary))
    wandb.finish()
open("said.json", "w").write(json.dumps(said[-1]))
"""


def read_tensorboard(folder: Path) -> dict[str, float]:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    found: dict[str, float] = {}
    for file in folder.rglob("events.out.tfevents.*"):
        events = EventAccumulator(str(file))
        events.Reload()
        found |= {name: events.Scalars(name)[-1].value for name in events.Tags()["scalars"]}
    return found


def read_mlflow(folder: Path) -> dict[str, float]:
    """The last value of each metric in MLflow's file store: lines of time, value and step."""
    found: dict[str, float] = {}
    for file in folder.glob("mlruns/*/*/metrics/**/*"):
        if file.is_file():
            name = str(file.relative_to(next(one for one in file.parents if one.name == "metrics")))
            found[name] = float(file.read_text().splitlines()[-1].split()[1])
    return found


def read_wandb(folder: Path) -> dict[str, float]:
    """The run's summary as wandb itself had it, if the numbers are in its offline file too."""
    told: dict[str, float] = json.loads((folder / "summary.json").read_text())
    (file,) = folder.glob("wandb/offline-run-*/run-*.wandb")
    content = file.read_bytes()
    return {name: value for name, value in told.items() if name.encode() in content}


READERS = {"tensorboard": read_tensorboard, "mlflow": read_mlflow, "wandb": read_wandb}


@pytest.mark.parametrize("logger", list(READERS))
@pytest.mark.parametrize("framework", ["transformers", "lightning"])
def test_the_numbers_of_the_callback_are_those_in_the_loggers_files(
    framework: str, logger: str, tmp_path: Path
) -> None:
    for needed in (framework, logger, *(["accelerate"] if framework == "transformers" else [])):
        if importlib.util.find_spec(needed) is None:
            pytest.skip(f"needs `pip install {needed}`")
    code = (HUGGINGFACE if framework == "transformers" else LIGHTNING) + END
    (tmp_path / "train.py").write_text(f"import os\nLOGGER = {logger!r}\n{code}")
    env = python_env(without=("ZEUS_", "CUDA_", "WANDB_", "MLFLOW_")) | {
        "ZEUS_GPU": "virtual:v100?clock=virtual",
        "ZEUS_VIRTUAL_STATE": str(tmp_path / "cards"),
        "ZEUS_PRICE_PER_KWH": "0.3",
        "ZEUS_GCO2E_PER_KWH": "400",
        "HF_HUB_OFFLINE": "1",
        "OMP_NUM_THREADS": "1",
        "WANDB_MODE": "offline",
        "WANDB_SILENT": "true",
        "TENSORBOARD_LOGGING_DIR": str(tmp_path / "logs"),
        "MLFLOW_TRACKING_URI": f"file://{tmp_path}/mlruns",
        "MLFLOW_ALLOW_FILE_STORE": "true",
    }
    run_python("train.py", cwd=tmp_path, env=env)
    said = {name: value for name, value in json.loads((tmp_path / "said.json").read_text()).items() if name in NAMES}
    assert set(said) == NAMES
    assert said["zeus/money"] == pytest.approx(0.3 * said["zeus/joules"] / 3.6e6)
    assert said["zeus/gco2e"] == pytest.approx(400 * said["zeus/kwh"])
    found = {name.removeprefix("train/"): value for name, value in READERS[logger](tmp_path).items()}
    for name, value in said.items():
        assert found[name] == pytest.approx(value, rel=1e-5), name
