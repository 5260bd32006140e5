"""Where cells run: in this process, in worker processes, in the background of this machine, or in SLURM jobs."""
