"""Settings keep their values from a table's yaml through overrides, the cell and the record's changes, and back."""

import json

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import QuotedString
from omegaconf import OmegaConf

from harness.commands.rewrite import rewrite
from harness.config import sweep
from harness.config.compose import compose
from harness.config.overrides import to_overrides
from harness.config.table_rows import settings_key
from harness.config.variants import changes

VALUES = [
    *(1, 1.5, 1e-05, None, True, "null", "true", "12", "1e5", "nan", "10_000", "3.5x", "lra/text", "packed"),
    *("a b", " lead ", "a,b", "a=b", "a:b", "it's", "\\", "x\\'y", "end\\", "(x)", "[1]", "a{b}", "", "é", "~/x"),
    *("glob(x)", "choice(a,b)", "-m", "@x", "a#b", "new\nline"),
    *([16, 32], ["a,b", "c d", None], [], [[1], [2.5]], {"a": 1, "b": [None, "x y"]}),
]


def plain(value):
    if isinstance(value, QuotedString):
        return value.text
    if isinstance(value, list):
        return [plain(item) for item in value]
    return {key: plain(item) for key, item in value.items()} if isinstance(value, dict) else value


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_hydra_reads_the_value_that_was_set(value):
    (override,) = to_overrides({"key": value})
    parsed = plain(OverridesParser.create().parse_override(override).value())
    assert parsed == value and type(parsed) is type(value)


LISTS = {"model.segments": [16, 32], "model.ratios": [1, 2]}
OTHERS = {"train.clip_value": None, "backbone.pooling": "masked_mean", "train.optimizer.betas": [0.9, 0.98]}


def test_settings_of_a_table_are_those_of_its_record():
    rows = {"LongNet": {"model": "longnet", "set": LISTS}}
    columns = {"ListOps": {"task": "lra/listops", "metric": "acc", "set": OTHERS}}
    table = {"protocol": "skyformer", "rows": rows, "columns": columns, "seeds": [1], "gpu_hours": 1}
    typed = ["budget=smoke"]
    (planned,) = sweep.expand_table(OmegaConf.create(table), compose(typed), typed).cells
    assert list(planned.cfg.model.segments) == [16, 32] and planned.cfg.train.clip_value is None
    recorded = json.loads(json.dumps(changes(planned.cell)))
    used = {key: value for key, (_, value) in recorded.items()}
    assert settings_key(used) == settings_key(LISTS | OTHERS)


def test_a_pattern_selects_names_with_a_recipe_and_lists_the_others(capsys):
    words = rewrite(["-m", "task=lra/*", "protocol=skyformer"])
    assert "lra/text" in words[1] and "lra/pathx" not in words[1]
    assert capsys.readouterr().err == "left out: lra/pathx (no recipe of skyformer)\n"
    assert "luna" in rewrite(["-m", "task=lra/text,lra/image", "protocol=*"])[2]
    assert "left out: llp (no recipe of lra/text,lra/image)" in capsys.readouterr().err
    assert rewrite(["-m", "task=lra/*", "model=lavo"])[1].count("lra/") == 6, "each under its own protocol"
    assert rewrite(["-m", "task=mt/*", "protocol=skyformer"])[1] == "task=mt/wmt14_ende", "refused where it is composed"
