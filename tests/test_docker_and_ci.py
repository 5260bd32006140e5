"""The Dockerfile (not built here), the GitHub workflow and the lock name only things that exist."""

import importlib.metadata
import re
import shlex
import subprocess
import tomllib
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[1]
WORKFLOW = ROOT / ".github" / "workflows" / "ci.yaml"


def instructions():
    """[(instruction, arguments)] of the Dockerfile, continued lines joined."""
    text = (ROOT / "Dockerfile").read_text(encoding="utf-8").replace("\\\n", " ")
    return [tuple(line.split(maxsplit=1)) for line in text.splitlines() if line.strip() and not line.startswith("#")]


def arguments(name):
    return [rest for instruction, rest in instructions() if instruction == name]


def ignored():
    lines = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    return {line for line in lines if line and not line.startswith("#")}


def extras():
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]


def test_what_is_copied_is_there_and_nothing_is_fetched_by_add():
    assert not arguments("ADD")
    sources = [source for rest in arguments("COPY") for source in rest.split()[:-1]]
    assert "constraints.txt" in sources and "." in sources
    assert all((ROOT / source).exists() and source not in ignored() for source in sources)
    (entry,) = arguments("ENTRYPOINT")
    assert yaml.safe_load(entry) == ["python", "run.py"] and (ROOT / "run.py").is_file()


def test_pip_is_bound_by_the_constraints_and_knows_the_extras():
    lines = [rest for rest in arguments("RUN") if "pip install" in rest]
    assert len(lines) == 2 and all("-c constraints.txt" in line and "--no-cache-dir" in line for line in lines)
    (default,) = [rest.partition("=")[2] for rest in arguments("ARG") if rest.startswith("EXTRAS=")]
    assert set(default.split(",")) <= set(extras())


def needed():
    """Packages that the project and its extras require in this environment, except pip."""
    packages, new = set(), {("longhaul", extra) for extra in [*extras(), ""]}
    while new:
        name, extra = new.pop()
        packages.add((name, extra))
        for line in importlib.metadata.requires(name) or ():
            requirement = Requirement(line)
            if requirement.marker is None or requirement.marker.evaluate({"extra": extra}):
                pairs = {(canonicalize_name(requirement.name), option) for option in (*requirement.extras, "")}
                new |= {pair for pair in pairs - packages if installed(pair[0])}
    return {name for name, _ in packages} - {"longhaul", "pip"}


def installed(name):
    try:
        return importlib.metadata.version(name).partition("+")[0]
    except importlib.metadata.PackageNotFoundError:
        return None


def test_every_package_of_this_environment_is_locked_with_its_hashes():
    lock = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    assert "://" not in lock and "index-url" not in lock, "it names no place to fetch from"
    blocks = re.findall(r"^(\S+)==(\S+) \\\n((?:    --hash=sha256:[0-9a-f]{64}(?: \\)?\n)+)", lock, re.MULTILINE)
    locked = {name: version for name, version, _ in blocks}
    assert "".join(f"{name}=={version} \\\n{hashes}" for name, version, hashes in blocks) == lock, "and nothing else"
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    assert dict(line.split("==") for line in lines if line[0] != "#") == locked
    for line in (ROOT / "requirements-cpu.lock").read_text(encoding="utf-8").splitlines():
        name, version = re.fullmatch(r"(\S+)==(\S+)\+cpu --hash=sha256:[0-9a-f]{64}", line).groups()
        assert locked[name] == version
    here = {name: installed(name) for name in needed()}
    assert len(here) > 100 and {name: locked.get(name) for name in here} == here


def test_what_belongs_to_this_machine_is_not_copied():
    of_git = (ROOT / ".gitignore").read_text(encoding="utf-8").splitlines()
    places = {line.strip("/") for line in of_git if line.startswith("/") and "*" not in line}
    assert places >= {"data", "outputs"}
    assert {*places, ".git", ".venv", "conf/local/*.yaml"} <= ignored()


def parts():
    """What .ci/run asks of make: [target, variables ...] of each part."""
    text = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    return [shlex.split(words) for words in re.findall(r"^(?:nice )?make ([^\n>|#]+)", text, flags=re.MULTILINE)]


def test_a_failing_part_fails_ci_and_is_shown(tmp_path):
    """The parts beside SLURM's tests are run, whichever of them fails. Nothing follows fast tests that fail."""
    script = tmp_path / ".ci" / "run"
    script.parent.mkdir()
    script.write_bytes((ROOT / ".ci" / "run").read_bytes())
    targets = list(dict.fromkeys(target for target, *_ in parts()))
    for failing in ["no part", "test", targets[-1]]:
        ends = {target: "fails && false" if target == failing else "passes" for target in targets}
        (tmp_path / "Makefile").write_text("".join(f"{name}:\n\t@echo {name} {end}\n" for name, end in ends.items()))
        done = subprocess.run(["bash", script], capture_output=True, text=True, timeout=60)
        said = {line for line in done.stdout.splitlines() if line.split()[0] in targets}
        expected = {f"{name} {'fails' if name == failing else 'passes'}" for name in targets}
        assert said == ({"test fails"} if failing == "test" else expected)
        assert (done.returncode == 0) == (failing == "no part"), failing
        assert failing in ("no part", "test") or done.stderr.endswith(f"failed: {failing}\n")


@pytest.fixture
def workflow():
    return yaml.safe_load(WORKFLOW.read_text(encoding="utf-8"))


def runs(job):
    return [step["run"] for step in job["steps"] if "run" in step]


def test_the_workflow_runs_what_ci_run_runs(workflow):
    required = [job for job in workflow["jobs"].values() if not job.get("continue-on-error")]
    assert len(parts()) >= 6
    assert sorted(shlex.split(line)[1:] for job in required for line in runs(job)) == sorted(parts())
    optional = [job for job in workflow["jobs"].values() if job not in required]
    assert [runs(job) for job in optional] == [["make test"]]
    assert optional[0]["strategy"]["matrix"]["python"] == ["3.12", "3.13"]


def test_the_workflow_installs_what_the_makefile_does(workflow):
    (default,) = re.findall(r"^EXTRAS \?= (\S+)$", (ROOT / "Makefile").read_text(encoding="utf-8"), flags=re.MULTILINE)
    chosen = set(workflow["env"]["EXTRAS"].split(","))
    assert {*default.split(","), "loggers"} <= chosen <= set(extras())
