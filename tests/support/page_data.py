"""What a service tells the page, written by hand: a job with all that can be told of one."""

from __future__ import annotations

from typing import Any

COMMAND = "python train.py --batch-size {batch_size} \\\n  --data <speech>"
SAVED = "saved 42 % ± 1 % energy (43.7 kJ ± 1.20 kJ, measured); 12 % ± 0 % less time"


def saving() -> dict[str, Any]:
    """As the service tells one."""
    return {
        "joules": 43.7e3,
        "seconds": 300.0,
        "cost": 60e3,
        "share": 0.42,
        "time_share": 0.12,
        "recurrences": 7,
        "money": 0.42,
        "currency": "EUR",
        "gco2e": 4.2,
        "basis": "measured",
        "joules_error": 1200.0,
        "seconds_error": 4.0,
        "sentence": SAVED,
        "difference_seen": True,
    }


def everything(recurrences: int = 8) -> dict[str, Any]:
    """A job with all that the service tells of one, and another that has not run yet."""
    usual = {
        "batch_size": 64,
        "limit_watts": 250.0,
        "runs": 3,
        "epochs": 9.0,
        "joules": 104e3,
        "seconds": 600.0,
        "cost": 127e3,
        "basis": "measured",
        "joules_error": 1500.0,
        "seconds_error": 5.0,
        "runs_measured": 3,
    }
    brief = {
        "job": "speech",
        "policy": "structured",
        "phase": "sampling",
        "recurrences": recurrences,
        "trials": recurrences + 1,
        "batch_size": 64,
        "default": usual,
        "default_why_not": None,
        "saving": saving(),
        "recent_saving": saving(),
        "running": [running()],
        "joules": 524e3,
        "unknown_tries": 0,
        "costs": [127e3] + [80e3] * (recurrences - 1),
        "remark": None,
    }
    spec = {
        "command": COMMAND,
        "batch_sizes": [64, 128, 256],
        "default_batch_size": 64,
        "eta_knob": 0.5,
        "beta_knob": 2.0,
        "target_metric": 0.31,
        "higher_is_better_metric": False,
        "max_epochs": 40,
        "window_size": 10,
        "power_limits": [250.0, 200.0, 150.0],
    }
    measured = {"measurements": [step(150.0), step(200.0), step(250.0)]}
    places = [
        {"batch_size": size, "limit_watts": watts, "seconds": 600.0 - watts, "joules": 400.0 * watts}
        | {"is_default": (size, watts) == (64, 250.0), "on_front": size == 128}
        for size in (64, 128)
        for watts in (150.0, 200.0, 250.0)
    ]
    full = {
        **brief,
        "spec": spec,
        "policy_version": 3,
        "revision": 2,
        "registered_at": "2026-03-01T08:00:00.000000+00:00",
        "gpu_model": "V100",
        "max_watts": 250.0,
        "next": {"batch_size": 64, "reason": "64 is the best size so far; no other looks worth trying"},
        "stuck": None,
        "sizes": [belief(64, 90e3), belief(128, 80e3), belief(256, None)],
        "points": places,
        "history": [recurrence(number) for number in range(1, recurrences + 1)],
        "tries": [attempt(number) for number in range(1, recurrences + 1)]
        + [{**attempt(9), **running(), "ending": "open", "seconds": 300.0}],
    }
    waiting = {"job": "vision", "phase": "new", "recurrences": 0, "trials": 0, "batch_size": None, "saving": None}
    waiting |= {"recent_saving": None, "running": [], "joules": None, "costs": [], "remark": None}
    return {
        "at": "2026-03-02T08:00:00.000000+00:00",
        "summary": {
            "jobs": 2,
            "trials": recurrences + 1,
            "recurrences": recurrences,
            "joules": 524e3,
            "jobs_with_saving": 1,
            "saved_joules": 43.7e3,
            "saved_share": 0.42,
            "saved_seconds": 300.0,
            "saved_joules_error": 1200.0,
            "saved_sentence": SAVED,
            "money": 0.42,
            "currency": "EUR",
            "gco2e": 4.2,
        },
        "jobs": [brief, waiting],
        "full": {"speech": full},
        "profiles": {
            "speech": [
                profile(64, measured) | {"costs": {"150.0": 5.0, "200.0": 4.0, "250.0": 6.0}},
                profile(128, measured),
            ]
        },
    }


def running() -> dict[str, Any]:
    """A trial that is open now."""
    found = {"number": 9, "recurrence": 8, "attempt": 2, "batch_size": 128, "epochs": 4, "metric": 0.35}
    return {**found, "joules": 61.5e3, "asked_at": "2026-03-02T07:50:00.000000+00:00"}


def recurrence(number: int) -> dict[str, Any]:
    """The first runs the default; what that uses is known afterwards."""
    first = number == 1
    return {
        "number": number,
        "end": "converged",
        "tries": 1,
        "batch_size": 64 if first else 128,
        "epochs": 9,
        "joules": 104e3 if first else 60e3,
        "seconds": 600.0 if first else 520.0,
        "cost": 127e3 if first else 80e3,
        "default_joules": None if first else 104e3,
        "default_seconds": None if first else 600.0,
        "default_basis": None if first else "measured",
    }


def attempt(number: int) -> dict[str, Any]:
    """A try of the table of tries."""
    return {
        "number": number,
        "recurrence": number,
        "attempt": 1,
        "batch_size": 64 if number == 1 else 128,
        "gpu_model": "V100",
        "gpus": 2,
        "limits": {"250": 2, "150": 1, "200": 57},
        "eta": 0.5,
        "overshoot": 1500.0,
        "cost_limit": 200e3,
        "reason": "128 looks cheaper than 64 and has been tried less often than the others",
        "ending": "converged",
        "epochs": 9,
        "metric": 0.3,
        "joules": 60e3,
        "seconds": 520.0,
        "cost": 80e3,
        "asked_at": "2026-03-01T08:00:00.000000+00:00",
        "leased_until": None,
    }


def belief(size: int, mean: float | None) -> dict[str, Any]:
    """What is thought of a batch size."""
    found = {"batch_size": size, "standing": "offered", "runs": 3, "converged": 3}
    return {**found, "mean": mean, "spread": 2e3 if mean else None, "limit_watts": 200.0}


def profile(size: int, measured: dict[str, Any]) -> dict[str, Any]:
    """A power profile, as the service tells it."""
    return {"key": {"batch_size": size, "gpu_model": "V100", "gpu_count": 1}, "profile": measured, "best_limit": 200.0}


def step(watts: float) -> dict[str, Any]:
    """Ten steps at a power limit."""
    return {"power_limit": watts, "steps": 10, "energy": 0.5 * watts, "time": 100 / watts}


def fleet() -> dict[str, Any]:
    """What all jobs used and saved, week by week."""

    def used(share: float, *, failed: int = 0) -> dict[str, Any]:
        known = {"joules": 40e6, "saved_joules": 9e6, "saved_joules_error": 1e6, "money": 3.4, "saved_money": 0.8}
        scaled = {name: share * value for name, value in {**known, "gco2e": 3600.0, "saved_gco2e": 800.0}.items()}
        return {**scaled, "recurrences": round(40 * share), "failed": failed}

    row = {"job": "speech", "owner": "nlp/alice", "last_run_at": "2026-03-02T07:00:00+00:00", "sentence": None}
    return {
        "weeks": [{"week": f"2026-W0{n}", **used(0.2 * n)} for n in range(1, 6)],
        "owners": [{"owner": "nlp/alice", **used(0.7)}, {"owner": "", **used(0.3, failed=2)}],
        "gpus": [{"gpu_model": "V100", **used(0.6)}, {"gpu_model": "H100", **used(0.4)}],
        "losing": [{**row, "job": "ctr", "sentence": "used 5 % ± 1 % more energy (5.00 kJ ± 1.00 kJ, measured)"}],
        "failing": [],
        "idle": [row],
        "currency": "EUR",
        "totals": used(1.0, failed=2),
        "as_of": "2026-03-02T08:00:00+00:00",
        "sentence": "2 jobs used 11.1 kWh and saved 2.50 ± 0.28 kWh.",
    }
