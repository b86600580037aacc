"""Real time: the processes of a cluster, one file a process."""
