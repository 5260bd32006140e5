"""Cells that run elsewhere: frozen with their code, carried out in jobs, found again through their folders."""
