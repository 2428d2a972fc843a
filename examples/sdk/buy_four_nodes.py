"""What if we buy 4 nodes with H100? What starts then, and what one hour of the fleet costs."""

from dovetail.sdk import Cluster

PRICES = {"H100": 2.5, "A100": 1.6, "GB200": 6.0, "L4": 0.6}  # of one GPU-hour

cluster = Cluster.connect()
answer = cluster.what_if(add="4xh100", prices=PRICES)
print(answer.sentence)
for job in answer.difference.starts:
    print(f"  {job.work}: {job.pods} pods on {', '.join(job.nodes)}")

before, after = answer.before, answer.after
print(f"GPUs free: {sum(each.free for each in before.gpus.values()):g} today", end=", ")
print(f"{sum(each.free for each in after.gpus.values()):g} with 4 more nodes")
print(f"cost per hour: {before.cost_per_hour:g} today, {after.cost_per_hour:g} then")
