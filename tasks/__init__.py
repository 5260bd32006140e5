"""Tasks: data, loss, metrics and decoding. One file per task, `tasks/<family>/<name>.py`."""
