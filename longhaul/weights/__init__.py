"""Small trained models that come with the project, as folders; `harness.records.to_try` finds them."""

from harness.records.to_try import DEMO, FOLDER, names, to_try

__all__ = ["DEMO", "FOLDER", "names", "to_try"]
