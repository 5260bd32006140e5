import multiprocessing

from harness.records.run_directory import RunDirectory, heartbeat


def _claim(path, answer):
    answer.put(RunDirectory(path).claim())


def test_one_owner_at_a_time(tmp_path):
    mine = RunDirectory(tmp_path / "run")
    assert mine.claim()
    context = multiprocessing.get_context("spawn")
    answer = context.Queue()
    other = context.Process(target=_claim, args=(tmp_path / "run", answer))
    other.start()
    assert answer.get(timeout=60) is False
    other.join()
    mine.release()
    assert RunDirectory(tmp_path / "run").claim()


def test_a_heartbeat_is_alive_only_while_the_folder_is_held(tmp_path):
    run = RunDirectory(tmp_path / "run")
    assert heartbeat(run.path) is None
    run.claim()
    run.beat("running", step=3, steps=9)
    assert heartbeat(run.path)["alive"] and heartbeat(run.path)["step"] == 3
    run.release()
    assert not heartbeat(run.path)["alive"]


def test_beats_are_few_unless_forced(tmp_path):
    run = RunDirectory(tmp_path / "run")
    run.claim()
    run.beat("running", step=1, steps=9)
    run.beat("running", step=2, steps=9)
    assert heartbeat(run.path)["step"] == 1
    run.beat("done", step=9, steps=9, force=True)
    assert heartbeat(run.path)["step"] == 9


def test_rows_after_the_last_checkpoint_are_written_again_not_twice(tmp_path):
    run = RunDirectory(tmp_path / "run")
    run.claim()
    for step in (10, 20, 30):
        run.add_metrics({"step": step, "val/acc": step / 2})
    with run.metrics.open("a") as table:
        table.write("4")  # a row that a kill cut short
    run.keep_metrics_until(20)
    run.add_metrics({"step": 30, "val/acc": 15.0})
    assert run.metrics.read_text().split() == ["step,val/acc", "10,5.0", "20,10.0", "30,15.0"]
