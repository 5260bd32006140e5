"""Point cloud completion: the whole surface of a shape from its visible points."""
