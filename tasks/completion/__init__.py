"""Point cloud completion: the whole surface of a shape from the points that were seen of it."""
