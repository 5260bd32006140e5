"""Longhaul: `python run.py model=lavo task=lra/listops`. `python run.py --help` shows what can be typed."""

import sys
from pathlib import Path

import hydra
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf

sys.path.insert(0, str(Path(__file__).resolve().parent))

from harness.commands import cli
from harness.config.compose import register

register()
statuses: list[int] = []


@hydra.main(version_base="1.3", config_path="conf", config_name="config")
def main(cfg: DictConfig) -> None:
    overrides = OmegaConf.to_container(HydraConfig.get().overrides.task, resolve=False)
    statuses.append(cli.dispatch(cfg, overrides))


if __name__ == "__main__":
    sys.exit(cli.main(main, statuses))
