"""Kernels that were requested and do not compile or load: one line, and torch's forms go on."""

import logging

import pytest
import torch
import torch.utils.cpp_extension

from models.ops import native
from models.ops.banded import banded_attention

FAILURES = {
    "no compiler": RuntimeError("Error checking compiler version for c++: [Errno 2] No such file\nmore"),
    "no ninja": RuntimeError("Ninja is required to load C++ extensions (pip install ninja to get it)\nmore"),
    "other ABI": OSError("longhaul.so: undefined symbol: _ZN3c106detail14torchCheckFailEv\nmore"),
    "read-only cache": PermissionError(13, "Permission denied", "/cache/torch_extensions"),
}


@pytest.fixture(autouse=True)
def requested(monkeypatch):
    monkeypatch.setenv(native.SWITCH, "1")
    monkeypatch.setattr(logging.getLogger(native.__name__), "disabled", False)
    native.load.cache_clear()
    yield
    native.load.cache_clear()


@pytest.mark.parametrize("failure", FAILURES)
@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_torchs_form_goes_on_after_one_line(monkeypatch, tmp_path, caplog, failure, dropout):
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(tmp_path))  # holds no library
    attempts = []

    def fail(*arguments, **options):
        attempts.append(arguments)
        raise FAILURES[failure]

    monkeypatch.setattr(torch.utils.cpp_extension, "load", fail)
    x = torch.randn(1, 2, 40, 16, generator=torch.Generator().manual_seed(0))
    with caplog.at_level(logging.WARNING):
        outcomes = []
        for _ in range(2):
            torch.manual_seed(1)
            outcomes.append(banded_attention(x, x, x, left=3, right=3, dropout=dropout))
    assert torch.equal(*outcomes)
    (message,) = [record.getMessage() for record in caplog.records]
    assert message.startswith("resources.kernels=native: ") and "\n" not in message
    assert str(FAILURES[failure]).splitlines()[0] in message and "resources.kernels=torch" in message
    assert failure != "no ninja" or "pip install -e .[native]" in message
    assert message.endswith("torch's forms are used instead")
    assert len(attempts) == 1 and not native.enabled()
    monkeypatch.setenv(native.SWITCH, "0")
    torch.manual_seed(1)
    assert torch.equal(banded_attention(x, x, x, left=3, right=3, dropout=dropout), outcomes[0])


def test_a_compiled_library_is_loaded_without_a_compiler(monkeypatch, tmp_path):
    """Two clones share the library: its name is a digest of the sources, the flags, torch and the processor."""
    name = f"longhaul_{native.digest()[:12]}"
    (tmp_path / name).mkdir()
    (tmp_path / name / f"{name}.so").touch()
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(tmp_path))
    calls = []
    monkeypatch.setattr(torch.ops, "load_library", calls.append)
    monkeypatch.setattr(torch.utils.cpp_extension, "load", lambda *arguments, **options: calls.append("compiled"))
    native.load()
    assert calls == [str(tmp_path / name / f"{name}.so")]
    native.load.cache_clear()
    (tmp_path / name / "lock").touch()  # another process compiles: torch's builder waits for it
    native.load()
    assert calls[1:] == ["compiled"]


def test_a_cache_that_cannot_be_written_is_one_line(monkeypatch, tmp_path, caplog):
    (tmp_path / "file").touch()
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(tmp_path / "file"))
    with caplog.at_level(logging.WARNING):  # another test may have raised the level
        assert native.kernels(torch.zeros(1, 16)) is None
    (message,) = caplog.messages
    assert message.startswith("resources.kernels=native: ") and "\n" not in message


def test_the_lock_of_a_killed_build_is_not_waited_for(monkeypatch, tmp_path):
    """Torch removes its lock when a build ends; after SIGKILL the next one would wait without end."""
    folder = tmp_path / f"longhaul_{native.digest()[:12]}"
    folder.mkdir()
    (folder / "lock").touch()
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(tmp_path))
    locks = []
    monkeypatch.setattr(torch.utils.cpp_extension, "load", lambda *_, **__: locks.append((folder / "lock").exists()))
    native.load()
    assert locks == [False]
