// The settings of a job.
import { card, el, fact, missing } from "./dom.js";
import { count, number, targetText, watts, when } from "./format.js";

export function settingsCard(cards, job) {
  const node = card(cards, "Settings", null, true),
    spec = job.spec;
  const better = spec.higher_is_better_metric ? "higher is better" : "lower is better";
  const limits = spec.power_limits?.length ? spec.power_limits.map(watts).join(", ") : "all, in steps of 25 W";
  const version = missing(job.policy_version) ? "" : `, version ${job.policy_version}`;
  const since = job.registered_at ? `, since ${when(job.registered_at)}` : "";
  if (spec.command)
    node.append(
      el("h3", {}, "Command"),
      el("pre", { class: "log", tabindex: "0", "aria-label": "Command" }, spec.command),
    );
  node.append(
    el(
      "dl",
      { class: "facts settings" },
      fact("Target", `metric ${targetText(spec)}`, better),
      fact("Max epochs", number(spec.max_epochs)),
      fact("η (eta)", number(spec.eta_knob), "1: only energy counts; 0: only time"),
      spec.beta_knob === null
        ? fact("β (beta)", "none", "no run is stopped for its cost")
        : fact("β (beta)", number(spec.beta_knob), "a run may cost this many times the best one"),
      fact(
        "Window",
        spec.window_size ? `the last ${count(spec.window_size, "run")} of each size` : "none",
        spec.window_size ? null : "nothing is forgotten",
      ),
      fact("Batch sizes", spec.batch_sizes.join(", ")),
      fact("Default batch size", number(spec.default_batch_size)),
      fact("Power limits", limits),
      fact("Policy", `${job.policy}${version}`),
      fact("Revision", missing(job.revision) ? "unknown" : `${job.revision}${since}`),
    ),
  );
}
