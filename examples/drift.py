"""A job whose data drift: the batch size that needs the fewest epochs changes twice in 120 recurrences.

It shows what each policy then uses, with and without a window (Section 4.4 of the paper). The GPU is modelled:

python examples/drift.py
"""

from zeus.simulate import virtual
from zeus.simulate.drift import run, shifts

job = virtual.load("v100", ["BERT-SA"])["BERT-SA"]
slices = shifts(job, 120, best=[8, 128, 16])

for policy in ("paper", "structured"):
    for window in (0, 10):  # how many recent costs of each size count; 0: all
        rows = run(slices, policy, window=window)
        megajoules = sum(row.energy for row in rows) / 1e6
        sizes = ", ".join(str(rows[end - 1].batch_size) for end in (40, 80, 120))
        print(f"{policy:10} window {window:2}: {megajoules:5.0f} MJ, sizes at the end of each third: {sizes}")
