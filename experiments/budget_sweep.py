"""How fast is a model with N layers on the device? Each budget measured, beside its limit and simulated.

    python -m experiments.budget_sweep      # data/results/budget_sweep__<machine>.json, simulator__….json

What a block costs is measured before anything is loaded, and the simulator gets nothing else. The model is
loaded once and placed anew for each budget; budgets of `--lifted` run without the cap on memory.

On an H200 about 4 minutes: a token copies 37 − N layers of 0.39 GB at 55 GB/s, so 51 tokens at N = 1, 2, 4,
8, 13 take 12.9, 12.5, 11.8, 10.4 and 8.6 s and 7.5, 4.6, 4 and 4 s at N = 16, 24, 32, 36: 76 s; naive, which
adds 36 layers' computing to each token, about 120 s; loading, starting, block costs 30 s.
"""

import argparse
import sys

from experiments import offload_options
from experiments.offload_checks import locked_checks, over, pace, peak_checks, row_table, same_checks
from experiments.offload_options import progress
from experiments.offloaded import Offloaded
from experiments.results import Results, all_met, check, report, reported
from minillm.block_times import BlockTimes
from minillm.errors import RunError

CAPPED, LIFTED = (1, 2, 4, 8, 13), (16, 24, 32, 34, 35, 36)
PROMPT_TOKENS = 128
DEFAULTS = {"cuda": {"new_tokens": 48}, "cpu": {"new_tokens": 12}}
MODES = ("prefetch", "naive")
GOAL, GOAL_ONE_LAYER = 0.98, 0.96


def main(arguments: list[str] | None = None) -> int:
    """Measure every budget in both modes; exit status 1 if a goal is missed."""
    options = read_options(arguments)
    names = ("budgets", "lifted", "prompt_tokens", "new_tokens")
    settings = offload_options.settings(options, *names)
    sweep = Results("budget_sweep", options.machine, options.out, settings, options.resume)
    measure(sweep, options)
    simulator = Results("simulator", sweep.machine_name, options.out, settings, about=sweep.description)
    compare_simulated(simulator, rows_of(sweep))
    return finish(sweep, simulator, options)


def read_options(arguments: list[str] | None) -> argparse.Namespace:
    """The command line; of the default budgets those that the model has layers for."""
    parser = offload_options.parser("budget_sweep", __doc__.split("\n")[0])
    parser.add_argument("--budgets", type=int, nargs="*", help="layers on the device, under the cap")
    parser.add_argument("--lifted", type=int, nargs="*", help="layers on the device, without the cap")
    parser.add_argument("--prompt-tokens", type=int, default=PROMPT_TOKENS)
    parser.add_argument("--new-tokens", type=int, help="a budget and mode; default: 48, emulated 12")
    options = offload_options.complete(parser.parse_args(arguments), DEFAULTS)
    layers = offload_options.config_of(options)[0].num_hidden_layers
    if options.budgets is None:
        options.budgets = [each for each in CAPPED if each < layers]
    if options.lifted is None:
        options.lifted = [each for each in LIFTED if each < layers] + [layers]
    return options


# ---- measuring ----


def measure(sweep: Results, options: argparse.Namespace) -> None:
    """Block costs, then a row a budget and mode, those under the cap first, all layers resident last."""
    layers = offload_options.config_of(options)[0].num_hidden_layers
    plan = [(mode, budget, True) for budget in options.budgets for mode in MODES]
    plan += [(mode, budget, False) for budget in options.lifted for mode in MODES]
    plan += [("resident", layers, False)]
    times = offload_options.blocks(sweep, options)
    if all(sweep.rows(f"{mode}/{budget}") for mode, budget, _ in plan):
        return
    prompt_and_answer = options.prompt_tokens + options.new_tokens
    offload_options.limit_memory(options.device, options.cap_gib)
    link = offload_options.link_gb_s(sweep, times)
    with Offloaded(options, prompt_and_answer, link, gpu_layer_budget=1) as offloaded:
        sweep.row("loaded", offloaded.loaded)
        for mode, budget, capped in plan:
            measure_one(sweep, offloaded, times, mode, budget, options.cap_gib if capped else None)


def measure_one(
    sweep: Results, offloaded: Offloaded, times: BlockTimes, mode: str, budget: int, cap_gib: float | None
) -> None:
    """Place, warm up, generate. A budget that does not fit is told and left out."""
    options = offloaded.options
    prompt = offload_options.joined_prompt(offloaded.config, options.prompt_tokens)

    def row() -> dict:
        offload_options.limit_memory(options.device, cap_gib)
        offloaded.place(mode, budget)
        offloaded.warm(prompt)
        about = {**offloaded.placed(mode), "cap_gib": cap_gib}
        made = offloaded.run(prompt, options.new_tokens)
        return {**about, **made, "simulated_tokens_per_s": offloaded.simulated(mode, times)}

    try:
        found = sweep.row(f"{mode}/{budget}", row)
        progress(f"{mode}/{budget}: {found['tokens_per_s']:.3f} tok/s")
    except RunError as error:
        progress(f"{mode}/{budget} is left out: {error}")


def rows_of(sweep: Results, mode: str = "") -> list[dict]:
    """Rows of a mode, or of all."""
    return [row for row in sweep.rows() if row.get("mode", "").startswith(mode) and "mode" in row]


# ---- judging ----


def compare_simulated(simulator: Results, rows: list[dict]) -> None:
    """A row a budget and mode: what the simulator said over what was measured."""
    for row in rows:
        pair = {
            "mode": row["mode"],
            "budget": row["budget"],
            "measured_tokens_per_s": row["tokens_per_s"],
            "simulated_tokens_per_s": row["simulated_tokens_per_s"],
            "ratio": row["simulated_tokens_per_s"] / row["tokens_per_s"],
            "rtx3070_tokens_per_s": row["rtx3070_tokens_per_s"],
        }
        simulator.row(row["key"], lambda pair=pair: pair)


def finish(sweep: Results, simulator: Results, options: argparse.Namespace) -> int:
    """Write both files, print both tables; the exit status."""
    rows = rows_of(sweep)
    timed = speed_checks(rows, [*options.budgets, *options.lifted])
    for mode in (*MODES, "resident"):
        timed += peak_checks(mode, rows_of(sweep, mode)) if rows_of(sweep, mode) else []
    timed += locked_checks(sweep.rows("loaded"))
    checks = [*(timed if options.judged else reported(timed)), *same_checks(rows)]
    ratios = [figure for row in simulator.rows() for figure in ratio_checks(row)]
    ratios = ratios if options.judged else reported(ratios)
    simulator.finish(ratios)
    print(row_table(rows))
    report(sweep.finish(checks), [*checks, *ratios], short=True)
    return 0 if all_met([*checks, *ratios]) else 1


def speed_checks(rows: list[dict], budgets: list[int]) -> list[dict]:
    """Prefetch over the slower of link and resident computing, over naive; whether tokens keep their pace."""
    found = {row["key"]: row for row in rows}
    resident = next((row["tokens_per_s"] for row in rows if row["mode"] == "resident"), None)
    checks = []
    for budget in budgets:
        key, row = f"prefetch/{budget}", found.get(f"prefetch/{budget}", {})
        naive = found.get(f"naive/{budget}", {}).get("tokens_per_s")
        speed, bounds = row.get("tokens_per_s"), [row.get("limit_tokens_per_s"), resident]
        ratio = over(speed, min((each for each in bounds if each), default=None))
        goal = GOAL_ONE_LAYER if budget == 1 else GOAL
        checks.append(check(f"{key}: tok/s over min(limit of the design, resident)", ratio, goal))
        checks.append(check(f"{key}: tok/s over naive", over(speed, naive)))
        checks.append(check(f"{key}: tok/s", speed))
        checks.append(
            check(f"{key}: token time, last third over first", pace(row.get("token_s", [])), None, "lower")
        )
    return [*checks, check("resident: tok/s", resident)]


def ratio_checks(row: dict) -> list[dict]:
    """A range is two checks."""
    name = f"{row['key']}: simulated over measured tok/s"
    return [
        check(f"{name}, at least", row["ratio"], 0.95),
        check(f"{name}, at most", row["ratio"], 1.05, "lower"),
    ]


if __name__ == "__main__":
    sys.exit(offload_options.run(main))
