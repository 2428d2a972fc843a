"""Prepares claims on the hardware and undoes it: configs, overlap, checkpoint, partitions, sharing."""
