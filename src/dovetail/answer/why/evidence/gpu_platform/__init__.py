"""The GPU stack of the nodes: hardware, driver, toolkit, device plugin or DRA driver, MIG, CUDA."""
