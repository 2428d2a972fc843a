"""Why is everything waiting? A report for the morning: causes by class, then one line per pod and what would help."""

from collections import Counter

from dovetail.sdk import Cluster

cluster = Cluster.connect()
waiting = cluster.why_waiting()
blocked = waiting.filter(schedulable=False)

print(f"{cluster.now:%Y-%m-%d %H:%M} UTC, {cluster.name}: {len(waiting)} pods wait")
classes = Counter(answer.cause.class_ for answer in blocked if answer.cause is not None)
for name, count in classes.most_common():
    print(f"  {count} by {name}")

for answer in blocked:
    print()
    print(answer.sentence)
    for fix in answer.fixes[:1]:
        print(f"  would help ({fix.who}): {fix.title}")
