"""The paper's published traces, and the workloads made from them (§6.1)."""
