"""What others ask of the node by annotations: a dry run of a prepare, a reset of GPUs, a reboot."""
