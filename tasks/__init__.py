"""Tasks: data, loss, metrics and decoding. One file a task, `tasks/<family>/<name>.py`."""
