"""Functions of `import longhaul` with hostile folders, records, names and texts (tests/helpers/door_attacks.py).

Each attack gives data or a UsageError of one line, within seconds. It runs no command, writes nothing outside and
shows no secret.
"""

import tempfile
import time

import pytest

import longhaul
from tests.helpers.door_attacks import ATTACKS
from tests.helpers.hostile_door import Door
from tests.helpers.watch import Watch

SECRET = "hf_Zk3vQ9sLw7Tn5Yb2"
LIMIT_S = 5
LONGEST = 5_000  # letters of a message
CASES = [(kind, number) for kind, attacks in ATTACKS.items() for number in range(len(attacks))]


@pytest.fixture(scope="module")
def watch():
    """Watches after one good load: libraries make folders of their own, and try a socket, when first imported."""
    longhaul.load("demo/lavo").predict("[MAX 1 2 ]")
    return Watch()


def printable(text):
    return all(letter.isprintable() or letter in "\n\t" for letter in text)


@pytest.mark.parametrize(("kind", "number"), CASES)
def test_a_hostile_argument_gives_data_or_one_line(kind, number, tmp_path, watch, monkeypatch, alarm, capsys):
    monkeypatch.setenv("HF_TOKEN", SECRET)
    monkeypatch.chdir(tmp_path)
    door, said = Door(tmp_path / "door"), ""
    began = time.process_time()
    with watch.over(tmp_path, *map(type(tmp_path), [tempfile.gettempdir()])) as events:
        try:
            said = repr(ATTACKS[kind][number](door))
        except longhaul.UsageError as error:
            said = str(error)
            assert said.isprintable() and 0 < len(said) < LONGEST, said[:300]
    assert time.process_time() - began < LIMIT_S
    assert not events
    printed = "".join(capsys.readouterr())
    assert printable(printed) and "Traceback" not in printed
    assert SECRET not in said + printed
    assert not door.canary.exists() and door.victim.read_text() == "mine"
