"""Small trained models that come with the project, as folders; `harness.records.to_try` finds them."""
