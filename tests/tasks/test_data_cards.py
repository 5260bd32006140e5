"""Every task has a data card; what a card says follows from the code, and the page from the cards."""

import functools
import importlib
import pkgutil
import re

import pytest

import tasks.finetuning.glue
import tasks.lm.pg19
import tasks.lra.image
import tasks.lra.text
import tasks.summarization.multinews
from harness.commands import list as list_command
from harness.commands.mistakes import refuse_ignored
from harness.config.compose import compose, options
from harness.errors import UsageError
from harness.records.data_cards import PAGE, cards, page, value
from tasks.data_sources import Download
from tasks.lm.text_sources import HubFiles

TASKS = [name for name, _ in options("task")]
# task -> the constant of its code that counts the published examples, where its class has no `published`
COUNTED = {
    "completion/pcn": "tasks.completion.pcn.PUBLISHED",
    "tts/ljspeech": "tasks.tts.clips.CLIPS",
    "lm/openwebtext": "tasks.lm.openwebtext.PAGES",
    "lm/wikitext103": "tasks.lm.wikitext103.LINES",
}


@functools.cache
def reduced(task):
    return compose([f"task={task}", "budget=reduced"]).task


def total(counts):
    return counts if isinstance(counts, int) else sum(counts.values() if isinstance(counts, dict) else counts)


def test_every_task_has_a_card_and_every_card_a_task():
    assert set(cards()) == set(TASKS), "tasks/<package>/cards.yaml: harness/records/data_cards.py says how to write one"


def test_the_page_is_that_of_the_cards():
    assert PAGE.read_text(encoding="utf-8") == page(), "out of date: python -m harness.records.data_cards"


@pytest.mark.parametrize("task", TASKS)
def test_a_card_is_complete_and_says_what_the_reduced_budget_reads(task):
    card = cards()[task]
    for text in (card.name, card.data, card.licence, card.size, card.split, card.tokens, card.reduced):
        assert isinstance(text, str) and text.strip() and "TODO" not in text
    if "unknown" in card.licence:
        assert re.search(r"unknown: .*https://", card.licence), "a licence that is not known says where to look"
    source, _, text = card.reduced.partition(": ")
    config = reduced(task)
    assert source == config.get("source", "generated")
    if counts := re.match(r"([\d,]+) / ([\d,]+) / ([\d,]+) ", text):
        if "train" in config:
            sizes = [config[name] for name in ("train", "val", "test")]
            assert [int(count.replace(",", "")) for count in counts.groups()] == sizes
    elif "8,192" in text:
        assert config.examples == 8192
    named = {name.partition(":")[0] for name in (*card.parts, *card.stand_ins)}
    without_name = task.startswith("probe/") or named == {"synthetic"}
    assert source in named or source == "official" or (source == "generated" and without_name)


def test_nothing_is_fetched_without_a_card():
    text = page()
    modules = [importlib.import_module(module.name) for module in pkgutil.walk_packages(tasks.__path__, "tasks.")]
    values = [constant for module in modules for constant in vars(module).values()]
    # a series has its download
    named = [getattr(part, "download", part) for constant in values for part in parts(constant)]
    files = [part for part in named if isinstance(part, Download)]
    hubs = [part for part in values if isinstance(part, HubFiles)]
    assert len(set(files)) > 20 and len(hubs) > 5
    assert not [file.url for file in files if file.sha256 not in text]
    assert not [hub.name for hub in hubs if hub.revision not in text]


def parts(constant):
    """What a constant holds."""
    if isinstance(constant, dict):
        return constant.values()
    return constant if isinstance(constant, (tuple, list)) else [constant]


@pytest.mark.parametrize("task", [task for task in TASKS if cards()[task].examples])
def test_examples_are_as_many_as_the_code_says(task):
    config, examples = reduced(task), cards()[task].examples
    published = value(COUNTED[task]) if task in COUNTED else getattr(value(config._target_), "published", None)
    if task.startswith("forecasting/"):
        dataset = value("tasks.forecasting.datasets.DATASETS")[config.dataset]
        used = dataset.split_rows or dataset.rows
        train, _, test = (int(used * share) for share in dataset.shares)
        assert examples == {"train": train, "val": used - train - test, "test": test}
    elif published is not None:
        assert total(examples) == total(published)
    else:  # generated as it is read
        config = compose([f"task={task}"]).task
        assert examples == {name: config[name] for name in ("train", "val", "test")}


def test_the_command_prints_one_card(capsys):
    assert list_command.run(compose(["do=list", "task=lra/listops"]), ["do=list", "task=lra/listops"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("lra/listops  ListOps") and "licence" in shown and "96,000 train" in shown
    assert "CIFAR" not in shown
    refuse_ignored("list", ["do=list", "task=lra/listops"])
    with pytest.raises(UsageError, match=r"do=list does not read task\.train="):
        list_command.run(compose(["do=list"]), ["do=list", "task.train=3"])
