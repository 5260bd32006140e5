"""Diagrams of the papers, drawn from what the layers do: `conf/figure/<name>.yaml` with `kind: matrices` names them."""
