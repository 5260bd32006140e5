"""Learning-rate schedules and an optimizer."""
