"""Tables and pages about the GPU stack."""
