"""The node list of the head, and the processes of each host."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from reprise.cluster.answer import Answer
from reprise.cluster.doctor.doctor import Scripts
from reprise.cluster.doctor.facts import parse_facts
from reprise.cluster.record import Node, Record
from reprise.cluster.ssh import Ssh, assignments

__all__ = ["Listed", "NodeList", "Standing", "api_job", "ask_api", "standing_of", "state_job"]


@dataclass(frozen=True, slots=True)
class Listed:
    """A node as the head lists it: ALIVE or DEAD, its GPUs, and Ray's reason."""

    state: str
    gpus: float
    reason: str


@dataclass(frozen=True, slots=True)
class NodeList:
    """The head's list by address; `why` is the reason when it could not be read."""

    nodes: Mapping[str, Listed]
    why: str | None = None


@dataclass(frozen=True, slots=True)
class Standing:
    """The state that a host itself reports. `names` are its processes of this cluster, by pid."""

    answer: Answer
    names: Mapping[str, str]
    container: str | None

    @property
    def has_raylet(self) -> bool:
        """Whether the node's raylet runs."""
        return "raylet" in self.names.values()


def api_job(record: Record, scripts: Scripts, gpus: Mapping[str, int], seconds: float) -> str:
    """The script that asks the head for its nodes until `gpus` (by address) are listed."""
    exported = {
        "N_URL": record.address,
        "N_TOKEN_FILE": f"{record.root}/token",
        "N_SECONDS": f"{seconds:g}",
        "N_EXPECT": "".join(f"{ip} {count}\n" for ip, count in gpus.items()),
    }
    values = {"code": scripts.text("ray_nodes.py"), "python": record.python}
    run = '"$python" -I -'
    if record.image is not None:
        values |= {"engine": record.engine, "name": record.container}
        passed = " ".join(f"-e {name}" for name in exported)
        run = f'"$engine" exec -i {passed} "$name" "$python" -I -'
    lines = assignments(values) + assignments(exported, export=True)
    return f"{lines}printf '%s' \"$code\" | {run}\n"


def ask_api(
    record: Record,
    ssh: Ssh,
    scripts: Scripts,
    gpus: Mapping[str, int],
    seconds: float,
    on_wait: Callable[[Sequence[str]], None] | None = None,
) -> NodeList:
    """The node list once every address of `gpus` is alive with its GPUs, or after `seconds`.

    `on_wait` is called every second with the name of the head, as by `Ssh.run`.
    """
    script = api_job(record, scripts, gpus, seconds)
    (answer,) = ssh.run([(record.nodes[0].host, script)], seconds + 20, on_wait=on_wait)
    return node_list(answer)


def node_list(answer: Answer) -> NodeList:
    """The node list in the head's answer."""
    facts = parse_facts(answer.host, answer.output)
    if facts.one("api") != "yes":
        said = (answer.said.splitlines() or [answer.outcome.value])[-1]
        return NodeList({}, facts.why("api") or said)
    found = {}
    for value in facts.all("node"):
        address, state, gpus, reason = [*value.split(" ", 3), ""][:4]
        found[address] = Listed(state, float(gpus), reason)
    return NodeList(found)


def state_job(record: Record, node: Node, scripts: Scripts) -> tuple[Node, str]:
    """The script that asks a host for its own processes."""
    values = {"N_ID": record.id, "N_ENGINE": record.engine, "N_NAME": record.container}
    return node, assignments(values) + scripts.text("node_state.sh")


def standing_of(answers: Sequence[Answer]) -> dict[str, Standing]:
    """The state that each host reports, by host name."""
    found = {}
    for answer in answers:
        facts = parse_facts(answer.host, answer.output)
        found[answer.host] = Standing(answer, facts.pairs("own"), facts.one("container"))
    return found
