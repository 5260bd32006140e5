"""The command line. `python run.py`, `longhaul` and `python -m longhaul` are the same."""

import os
import sys

import hydra
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf

from harness.commands import cli
from harness.config.compose import register
from harness.config.places import CONF
from harness.garbage import begin_program


def main() -> int:
    """Carry out the command of `sys.argv`. Returns its exit status."""
    begin_program()
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:  # closed, as for a daemon: the null device takes its number
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115
    try:
        os.getcwd()
    except FileNotFoundError:
        print("error: the working directory is gone: cd to another folder", file=sys.stderr)
        return 2
    statuses: list[int] = []

    @hydra.main(version_base="1.3", config_path=str(CONF), config_name="config")
    def command(cfg: DictConfig) -> None:
        overrides = OmegaConf.to_container(HydraConfig.get().overrides.task, resolve=False)
        statuses.append(cli.dispatch(cfg, overrides))

    try:
        register()
        return cli.main(command, statuses)
    except KeyboardInterrupt:  # before or after what `cli.main` reports
        print("stopped", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
