"""Long Range Arena (Tay et al., 2021): classification of sequences of one to sixteen thousand tokens."""
