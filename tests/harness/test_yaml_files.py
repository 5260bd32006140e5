"""A yaml file beyond the bounds is refused in one line before anything is built from it."""

import time

import omegaconf
import pytest
import yaml
from yaml import YAMLError

from harness.config import yaml_files
from harness.config.compose import CONF
from harness.errors import UsageError

TENFOLD = "a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"a{level}: &a{level} [{','.join(10 * [f'*a{level - 1}'])}]\n" for level in range(1, 10)
)
TOO_LARGE = {
    "nine levels of ten anchors": TENFOLD,
    "text that anchors repeat": f"a: &a {'x' * 500_000}\nb: [{','.join(['*a'] * 20)}]\n",
    "deep lists": "[" * 5_000 + "]" * 5_000,
    "deep mappings": "{a: " * 5_000 + "}" * 5_000,
    "an anchor that contains itself": "a: &a [*a]",
    "a merge of itself": "a: &a {<<: *a}",
    "a long file": "# " + "x" * (1 << 20),
    "many values": "[" + "1," * 100_001 + "]",
    "a number of many digits": "a: " + "9" * 9_000,
    "a hexadecimal number": "a: 0x" + "f" * 9_000,
    "a tag": "a: !!timestamp evil",
    "a set": "!!set {a, b}",
    "a key that is a number": "{a: 1, 2: 3}",
    "a key that is null": "a: {null: 1}",
    "a key that is a list": "[1]: 2",
    "a zero byte": 'a: "\\0"',
}


@pytest.mark.parametrize("name", TOO_LARGE)
@pytest.mark.parametrize("read", [yaml_files.read, yaml_files.load_config])
def test_a_file_beyond_the_bounds_is_refused_at_once(tmp_path, name, read):
    file = tmp_path / "bomb.yaml"
    file.write_text(TOO_LARGE[name])
    began = time.process_time()
    with pytest.raises(UsageError, match=r"bomb\.yaml: ") as error:
        read(file)
    assert time.process_time() - began < 5 and "\n" not in str(error.value)
    assert len(str(error.value)) < 400


def test_a_fault_of_yaml_names_the_file_and_the_line(tmp_path):
    (tmp_path / "x.yaml").write_text("a: 1\nb: c: d")
    for use in (yaml_files.read, yaml_files.load_config):
        with pytest.raises(YAMLError) as error:
            use(tmp_path / "x.yaml")
        mark = error.value.problem_mark
        assert (mark.name, mark.line) == (str(tmp_path / "x.yaml"), 1)


def test_the_configuration_of_the_clone_is_far_from_the_bounds(monkeypatch):
    monkeypatch.setattr(yaml_files, "MOST_VALUES", yaml_files.MOST_VALUES // 50)
    for file in CONF.rglob("*.yaml"):
        yaml_files.check(file.read_text(), file)


def test_text_comes_back_as_it_was(tmp_path):
    values = {"a": ["${x}", "1e3", "\\${y}", "null", "é", 1.0e-05, None, True], "b": {"c": "0x1"}}
    (tmp_path / "x.yaml").write_text(yaml_files.text_of(values))
    assert yaml_files.read(tmp_path / "x.yaml") == values


def test_a_configuration_has_fewer_values_than_a_file_of_data(tmp_path):
    (tmp_path / "x.yaml").write_text(f"a: {[1] * 4_000}")
    assert len(yaml_files.read(tmp_path / "x.yaml")["a"]) == 4_000
    with pytest.raises(UsageError, match=r"x\.yaml: more than 3,000 values"):
        yaml_files.load_config(tmp_path / "x.yaml")


def test_the_c_parser_reads_each_configuration_as_omegaconf_s_own_parser_does():
    """Numbers such as 1e-3, times, duplicate keys: OmegaConf's rules, with PyYAML's C parser."""
    fast, python_loader = yaml_files.config_loader(), omegaconf._utils.get_yaml_loader()
    assert issubclass(fast, yaml.cyaml.CParser)
    texts = [path.read_text(encoding="utf-8") for path in sorted(CONF.rglob("*.yaml"))]
    texts += [
        "a: [1e-3, 1_000, 0x10, 2020-01-01, .inf, ~, 'x', 1:30, yes, '${b}']\nb: |\n  c\n",
        "",
        "- 1\n- {d: '\\${e}'}",
    ]
    for text in texts:
        assert repr(yaml.load(text, Loader=fast)) == repr(yaml.load(text, Loader=python_loader))
    with pytest.raises(UsageError, match="x:2: found duplicate key a"):
        yaml_files.parsed("a: 1\na: 2", "x", fast, 9)
