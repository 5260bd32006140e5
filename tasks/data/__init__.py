"""A user's own data: texts with classes, texts to continue, values to predict."""
