"""Commands that start, show, pause, resume and abort upgrades of the GPU stack."""
