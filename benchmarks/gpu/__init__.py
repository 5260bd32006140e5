"""`make gpu`: does Longhaul work on this machine's GPU, and how fast? One file per part."""
