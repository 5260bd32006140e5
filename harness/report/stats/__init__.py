"""Formulas over numbers: intervals, tests, ranks, growth. They know no table."""
