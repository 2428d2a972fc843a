"""The commands of people whose work runs on a cluster: run, wait, logs, cancel, queue, top, explain, completion."""
