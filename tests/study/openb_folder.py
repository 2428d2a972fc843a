"""A small folder of traces in the form of openb, for tests that must not need the recorded data."""

from __future__ import annotations

import gzip
from pathlib import Path

NODES = """sn,cpu_milli,memory_mib,gpu,model,in_gpu_list
node-b,8000,32000,1,T4,1
node-a,16000,64000,2,A10,1
node-c,16000,64000,0,,1
"""
PODS = """trace,name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec
default,pod-2,1000,1000,1,1000,
default,pod-0,1000,1000,1,500,A10|T4
default,pod-1,2000,1000,0,0,
other,pod-0,1000,1000,1,250,
"""
RUNS = """trace,seed,seq_id,n_arrivals
default,42,n3,4
"""
ARRIVALS = """seq_id,seed,pod_indices
n3,42,2 0 1 2 0 0
"""
NODE_ORDERS = """trace,seed,node_indices
default,42,1 0
"""


def written(folder: Path, **changed: str) -> Path:
    """All files, some with other text."""
    texts = {
        "openb_nodes": NODES,
        "openb_pods": PODS,
        "fgd_runs": RUNS,
        "fgd_arrival_sequences": ARRIVALS,
        "fgd_node_tiebreak_order": NODE_ORDERS,
    }
    for name, text in (texts | changed).items():
        (folder / f"{name}.csv.gz").write_bytes(gzip.compress(text.encode()))
    return folder
