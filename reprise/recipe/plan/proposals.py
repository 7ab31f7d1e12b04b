"""`recipe plan --search`: the layouts of a recipe, as a report."""

from __future__ import annotations

from reprise.core.findings import Report
from reprise.recipe.load import Loaded
from reprise.recipe.plan.estimate import ERROR, MODEL_OF_TIME
from reprise.recipe.plan.search import Search, search
from reprise.recipe.rules.base import Undecided
from reprise.recipe.setup import Setup

__all__ = ["propose"]

_RULE = "recipe-plan-search"


def propose(
    loaded: Loaded, gpu_memory: float | None = None, nodes: tuple[int, ...] = (), top: int = 10
) -> Report:
    """The `top` fastest layouts in `data["layouts"]`, with the model of time and its error.

    `gpu_memory` in GiB and the GPU's peak are the recipe card's where they are not given; without
    one of them the result is unknown. `nodes` are tried instead of the recipe's number.
    """
    report = Report("recipe plan")
    machine = loaded.card.machine
    memory = gpu_memory or loaded.known.gpu_memory
    facts = (("memory", memory, "--gpu-memory GIB, or gpu_memory under [machine] of card.toml"),
             ("peak (bf16_tflops)", machine.bf16_tflops,
              "bf16_tflops under [machine] of card.toml: the dense bfloat16 peak"))  # fmt: skip
    for fact, value, fix in facts:
        if value is None:
            report.unknown("recipe-plan-search.gpu-unknown", loaded.name, fact=fact, fix=fix)
    if memory is None or machine.bf16_tflops is None:
        return report
    setup = Setup(loaded.composition.values, loaded.tree, loaded.model, loaded.known)
    wanted = Search(memory, machine.bf16_tflops, machine.host_memory, nodes)
    try:
        if loaded.model is None:
            raise Undecided("the model's shape is unknown (--model-config)")
        result = search(loaded.composition, loaded.model, loaded.known, wanted)
    except Undecided as error:
        report.unknown(
            "recipe-plan-search.undecided", loaded.name, reason=error, recipe=loaded.name
        )
        return report
    report.data = {
        "verl": loaded.tree.label(),
        "tried": result.tried,
        "fit": result.fit,
        "time_is": MODEL_OF_TIME,
        "time_error": ERROR,
        "layouts": [one.to_json() for one in result.found[:top]],
    }
    if result.found:
        report.passed(_RULE)
    else:
        shown = ", ".join(map(str, nodes or (setup.nodes,)))
        report.failed(
            "recipe-plan-search.none", loaded.name,
            tried=result.tried, nodes=shown, gpu_memory=memory,
        )  # fmt: skip
    return report
