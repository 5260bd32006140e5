"""Wrong commands: one line that says what and where, exit status 2, no traceback, nothing touched."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

# command -> what its one line must say
WRONG = {
    "model=lavoo": "did you mean 'lavo'",
    "task=lra/listop": "did you mean 'lra/listops'",
    "protocol=skyformr": "did you mean 'skyformer'",
    "budget=tiny": "there is: paper, reduced, smoke",
    "sed=3": "did you mean 'seed'",
    "seed=abc": "could not be converted to Integer",
    "modle=lavo": "did you mean 'model'",
    "model.windwo=3": "did you mean 'model.window'",
    "train.max_stps=3": "did you mean 'train.max_steps'",
    "train.max_steps=many": "could not be converted to Integer",
    "rerun=al": "expected one of [missing, failed, all]",
    "do=trian": "did you mean 'train'",
    "do=bench model=lavoo": "did you mean 'lavo'",
    "do=bench model=local what=backward": "there is: decode, forward, generate, train",
    "model=perceiver_ar": "PerceiverAR has no noncausal_self form (it has: causal_self); these would fit: ",
    "model=lavo,vanilla": "add -m to sweep",
    "table=lavo/t99": "did you mean 'lavo/t",
    "seed": "not key=value",
    "=3": "key=value",
    "--sweep": "unrecognized arguments: --sweep",
    "--experimental-rerun config.pickle": "--experimental-rerun reads a pickle, which can run code",
    "-m hydra/launcher=slrum": "there is no hydra/launcher 'slrum': did you mean 'slurm'",
    "hydra/launcher=slurm": "only sweeps have a launcher: python run.py -m",
    "model=lav[aei]": "no model fits lav[aei]",
    "cluster=mine": "there is no cluster 'mine'",
    "resources.cpus=100000000": "resources.cpus=100000000 is more than 1,000",
    "do=bench lengths=100000000000": "bench.lengths=100000000000 is more than 1,000,000,000",
    "seed=99999999999": "seed=99999999999 is more than 4,294,967,295",
    "task=../../x": "is no name of an option",
    "resources.minutes=long": "could not be converted to Integer",
    "task.source=${nowhere}": "nowhere",
    "task.source=internet": "generated",
    "task.min_length=90": "min_length",
    "task.source=official": "path",
    "model=linformer task.pattern=causal_self": "these would fit: ",
    "model=linformer backbone.max_length=32 backbone.positions=none backbone.pooling=masked_mean": (
        "parameters for 32 tokens, the task has up to 64; these would fit: "
    ),
    "backbone.max_length=32": "it has parameters for 32 tokens, the task has up to 64\n",
    "model=lavo model.bases=64": "LAVO requires bases <= head width: 64 bases, head width 16\n",
    "model=custom": "model._target_ has no value",
    "model=custom model._target_=os.system": "trusted_packages=[os]",
    "model=lavo +model.colour=red": "colour",
    "backbone.pooling=max": "masked_mean",
    "train.max_steps=2": "warmup is 3 of 2 steps; lower it as well, train.schedule.warmup=...",
    "train.clip_norm=1": "both set",
    "trainer=cpu trainer.accelerator=abacus": "abacus",
    "trainer=cpu train.precision=7": "7",
    "task=forecasting/etth1 protocol=skyformer": "protocols that have: cab, lavo",
    "task=lra/pathx protocol=luna": "protocols that have: google",
    "table=lavo/t11 protocol=google": "leave protocol= out",
    "task=forecasting/etth1 model=linformer": "Linformer has no noncausal_cross form",
    "task=forecasting/etth1 task.features=MS": "none of M, S",
    "task=completion/pcn task.output_points=100": "64 would be",
    "seed=-1": "seed=-1 is less than 0",
    "-m seed=1,-1": "seed=-1 is less than 0",
    "n_jobs=0": "n_jobs=0 is less than 1",
    "train.batch_size=0": "train.batch_size=0 is less than 1",
    "train.eval_every=0": "train.eval_every=0 is less than 1",
    "train.patience=0": "train.patience=0 is less than 1",
    "train.optimizer.lr=0": "train.optimizer.lr=0 is not more than 0",
    "train.optimizer.lr=inf": "train.optimizer.lr=inf: a finite number",
    "train.optimizer.betas=3": "train.optimizer.betas: ",
    "train.schedule.warmup=1.5": "train.schedule.warmup: input should be a valid integer, not 1.5",
    "trainer.devices=-1": "trainer.devices=-1 is less than 1",
    "trainer.devices=1.5": "trainer.devices=1.5: a whole number",
    "backbone.heads=0": "heads=0 is less than 1",
    "backbone.dim=0": "dim=0 is less than 1",
    "backbone.layers=0": "layers=0 is less than 1",
    "backbone.head_dim=-1": "head_dim=-1 is less than 1",
    "backbone.dropout=nan": "backbone.dropout=nan: a finite number is expected",
    "backbone.final_norm=maybe": "backbone.final_norm: input should be a valid boolean, not 'maybe'",
    "model=lavo model.window=1.5": "model.window: input should be a valid integer, not 1.5",
    "task.train=1.5": "task.train: input should be a valid integer, not 1.5",
    "task.source=[]": "task.source: input should be a valid string, not []",
    "task.path=3": "task.path: ",
    "train.schedule.warmup=1": "warmup is 1 step",
    "model.name=../../x": "model.name=../../x: a name has letters",
    "model.name=mi/ne": "model.name=mi/ne: a name has letters",
    "budget.name=/abs": "budget.name=/abs: a name has letters",
    "task.name=lra/../x": "task.name=lra/../x: a name has letters",
    "model=custom model._target_=torch.nn.Identity": "_target_ 'torch.nn.Identity' may not be built",
    "model=custom model._target_=models.attention.lavo.Lavo": "models.attention.lavo.Lavo: did you mean 'LAVO'?",
    "model=LAVO": "did you mean 'lavo'?",
    "table=t11": "did you mean 'lavo/t11'",
    "train.lr=0.1": "did you mean 'train.optimizer.lr'?",
    "lr=0.1": "did you mean 'train.optimizer.lr'?",
    "model=lavo model.heads=4": "did you mean 'backbone.heads' or 'bench.heads'?",
    "train.optimizer=sgd": "train.optimizer._target_=torch.optim.Adam",
    "train.schedule=cosine": "train.schedule._target_=",
    "train.optimizer._target_=torch.optim.SGD": "(~train.optimizer.betas leaves it out)",
    "model=lávo": "there is no model 'lávo': did you mean 'lavo'?",
    "model=注意力": "there is no model '注意力'",
    "train.precision=é": "special characters need two quotes: 'train.precision=\"é\"'",
    "model=lavo model=vanilla": "model= is typed twice",
    "model=lavo model.name=vanilla": "the name of another model; model=vanilla chooses it",
    "check=true": "do=train does not read check=, do=report does",
    "figure=luna/f1": "do=train does not read figure=, do=report does",
    "do=plan format=csv": "do=plan does not read format=, do=report does",
    "do=curves format=csv": "do=curves does not read format=",
    "+foo=bar": "+foo: nothing reads foo",
    "++train.foo=1": "+train.foo: nothing reads train.foo",
    "hydra.run.dir=elsewhere": "hydra.run.dir= moves nothing here",
    "-m hydra.sweep.dir=elsewhere seed=1": "hydra.sweep.dir= moves nothing here",
    "paths.site=": "paths.site=: a folder of this machine is expected",
    "paths.site=s3://bucket/x": "a folder of this machine is expected",
    "resources.cpus=999": "CPU threads of this machine",
    "model=lavo model.window=0": "LAVO requires window >= 1, not 0\n",
    "task=probe/recall task.pattern=noncausal_cross": "error: backbone._target_: nothing is given for ",
    "-m train.optimizer.lr=interval(1e-4,1e-2)": "type the values, key=1e-4,1e-3",
    "task=lm/pg19 task.document_bytes=10": "document_bytes=10 is less than ",
    "task.pattern=foo": "is none of noncausal_self, causal_self, noncausal_cross, causal_cross",
    "do=bench model=lavo lengths=128 bench.axis=model.windoww bench.axis_values=[4,8]": "did you mean 'model.window'",
    "do=bench model=lavo lengths=128,128": "bench.lengths: 128 stands there twice",
    "do=bench model=lavo lengths=128 what=forward,forward": "bench.what: forward stands there twice",
    "do=bench model=lavo lengths=128 what=decode bench.pattern=noncausal_self": "only causal_self decodes",
    "model=lavo settings.lavo.window=5": "has no effect here, window is ",
    "do=status state=failde": "did you mean 'failed'?",
    "do=status since=yesterday": "since=12h",
    "do=report figure=luna/f99": "did you mean 'luna/f",
    "do=report table=lavo/t3 paths.records=nowhere": "nowhere: there is no folder of records",
    # typed by somebody who did not write the checks
    "seeds=1,2": "there is no key 'seeds': did you mean 'seed'",
    "protocol=own backbone.positions=none": "there is no key 'backbone.positions' in this recipe, as in others: +",
    "-m table=probes task.pairs=4": "probe/recall have it: add task=..., which chooses one",
    "task=probe/recall task.pair=4": "did you mean 'task.pairs'?",
    "model=lavo model.slots=3": "there is no key 'model.slots' in this model; abc, ",
    "-m seed=range(3,1)": "no value to run in seed=range(3,1)",
    "-m hydra/launcher=submitit_slurm": "there is no hydra/launcher 'submitit_slurm'",
    "-m hydra.sweeper.n_trials=10": "hydra.sweeper.trials= and .seed= belong to -m hydra/sweeper=optuna",
    "-m seed=range(1,2,0)": "no value to run in seed=range(1,2,0)",
    "hydra/sweeper=optuna": "only sweeps have a sweeper: python run.py -m",
    "protocol.configuration=xl": "protocol=skyformer has no sizes",
    "-m hydra.launcher=slurm": "type hydra/launcher=slurm, which chooses one",
    "do=bench model=lavo what=": "what= has no value",
    "hydra.job.chdir=true": "hydra.job.chdir= moves nothing here",
    "epochs=3": "a run has train.max_steps=... updates",
    "trainer.max_epochs=3": "a run has train.max_steps=... updates",
    "hidden_size=64": "backbone.dim=... is the width",
    "backbone.n_layers=2": "backbone.layers=... is the number of layers",
    "trainer.gpus=1": "resources=gpu1 takes one GPU",
    "learning_rate=1": "train.optimizer.lr=... is the learning rate",
    "~model": "~model: every command has one; model=... chooses another",
    "model=[lavo,latte]": "a name is expected; model=a,b with -m runs both",
    "model=": "there is no model '': there is: abc",
    "model=null": "there is no model 'null'",
    "protocol=": "there is no protocol ''",
    "task=lra.listops": "there is no task 'lra.listops'",
    "train.select.rule=last_mean train.mean_of=0": "two evaluations or more",
    "train.micro_batch_tokens=10": "is a part of train.batch_tokens",
    "trusted_packages=os": "a list is expected, trusted_packages=[os]",
    "depends_on=[nonsense]": "'nonsense' is not key=value",
    "depends_on=[task=lra/txt]": "special characters need two quotes",
    "backbone._target_=models.backbones.decoder.DecoderLM": "it takes no classes, which the task gives",
    "task=data/regression task.inputs=a,b task.target=y": "a list is typed in brackets, task.inputs=[a,b]",
    "task=data/regression task.inputs=[a,a] task.target=y": "a column stands there twice",
    "task=data/regression task.inputs=[a,y] task.target=y": "target=y is one of the inputs",
    "task=data/classification task.tokenizer=words task.vocabulary=1": "vocabulary=1 is less than 3",
    "task=data/classification task.fractions=[0.8,0.1]": "not three positive shares",
    "do=status state=": "state= has no value: state=failed,dead",
    "model=lavo model._target_=LAVO": "a class is named with its module: model._target_=mypkg.LAVO",
    "model=lavo model._target_=models.attention.nowhere.LAVO": "there is no such module",
    "hydra.verbose=maybe": "hydra.verbose=maybe: true, false or a list of loggers is expected",
    "do=bench model=lavo lengths=64 bench.run=recompute": "bench.run= is a run of a table or figure",
    "do=bench model=lavo lengths=64 bench.decoder.positions=none": "add bench.layers=2",
    "do=bench model=lavo lengths=64 bench.top_k=3": "only what=generate reads bench.top_k=",
    "do=bench model=lavo lengths=64 train.max_steps=3": "reads train.max_steps= for the model of a recipe",
    "do=bench model=lavo lengths=64 seed=3": "do=bench does not read seed=: it runs no cell",
    "do=bench task=lra/text model=lavo lengths=64 bench.dim=32": "the recipe sets it; leave bench.dim out",
    "do=plan bench.rounds=3": "do=plan does not read bench.rounds=, do=bench does",
    "do=verify model=lavo train.max_steps=3": "do=verify does not read train.max_steps=",
    "do=bench model=lavo lengths=64 bench.pattern=causal": "bench.pattern: there is no 'causal': did you mean 'causal_",
    "do=verify model=custom": "model._target_ has no value: add model._target_=package.module.Class",
    "cluster.sbatch=gpu": "cluster.sbatch=gpu: several settings, type cluster.sbatch={name: value}",
    "do=baselines": "type task= or table=",
    "task=secret": "there is no task 'secret': there is: completion/pcn",
    "do=report table=demo paths.paper=nowhere": "nowhere: there is no folder of published numbers",
}


@pytest.fixture
def typed(tmp_path, places, monkeypatch):
    """command -> the arguments of run.py, which is started in a folder without a file."""
    monkeypatch.chdir(tmp_path)
    places.append(f"paths.paper={ROOT / 'results/paper'}")

    def arguments(command):
        words = command.split()
        named = command.startswith(("budget", "-", "do=report", "do=b"))
        return [*places, *words] if named else ["budget=smoke", *places, *words]

    return arguments


def check(status, stdout, stderr, command, folder):
    assert status == 2, stderr
    assert stdout == ""
    stderr = stderr.removeprefix("importing torch ...\n")  # some need the class of the task or of the model
    assert stderr.startswith("error: ") and stderr.count("\n") == 1, stderr
    assert WRONG[command] in stderr
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("command", WRONG)
def test_one_line_and_nothing_touched(command, typed, run_here, tmp_path, capfd):
    status = run_here(typed(command))
    check(status, *capfd.readouterr(), command, tmp_path)


def test_a_shell_alone_asks_for_completions(run_here, capfd):
    assert run_here(["-sc", "query=bash"]) == 2
    assert "python run.py -sc install=bash" in capfd.readouterr().err


@pytest.mark.parametrize("words", [["--version"], ["--multirun"], ["-m", "-m"]])
def test_flags_alone_answer_at_once(words, run_here, capfd):
    assert run_here(words) == 0
    out = capfd.readouterr().out
    assert out.startswith("longhaul ") if words == ["--version"] else "python run.py" in out


@pytest.mark.parametrize("command", ["model=lavoo", "--sweep", "train.clip_norm=1", "do=bench model=lavoo"])
def test_a_new_process_prints_the_same_line(command, typed, tmp_path):
    done = subprocess.run(
        [sys.executable, str(ROOT / "run.py"), *typed(command)],
        capture_output=True, text=True, timeout=120, env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    check(done.returncode, done.stdout, done.stderr, command, tmp_path)
