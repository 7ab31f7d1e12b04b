"""Write rayjob.schema.json from KubeRay's own CRD: reduce.py ray.io_rayjobs.yaml VERSION COMMIT.

Descriptions go, and below a pod's template what the example does not use: such a key stays known,
its contents are any. Other keys are errors, as with `kubectl --validate=strict`. CEL rules
(x-kubernetes-validations) are not kept. KubeRay is licensed under Apache-2.0, as this project is.
"""

import json
import sys
from pathlib import Path
from typing import Any

import yaml

POD = ("containers", "volumes", "nodeSelector", "tolerations", "hostNetwork", "hostIPC")
CONTAINER = (
    *("name", "image", "imagePullPolicy", "command", "args", "env", "ports", "resources"),
    *("volumeMounts", "securityContext"),
)
VOLUME = ("name", "emptyDir", "hostPath", "persistentVolumeClaim")
KEPT = {"spec": POD, "containers": CONTAINER, "volumes": VOLUME}
# Whole parts of RayJob and RayCluster that the example does not use.
CUT = (
    *("submitterPodTemplate", "autoscalerOptions", "gcsFaultToleranceOptions", "headService"),
    *("historyServerOptions", "networkPolicy", "deletionStrategy", "affinity"),
)
WORDS = ("type", "enum", "pattern", "minimum", "maximum", "minItems", "maxItems", "required")


def reduced(schema: dict[str, Any], name: str, in_pod: bool) -> dict[str, Any]:
    found: dict[str, Any] = {key: schema[key] for key in WORDS if key in schema}
    if schema.get("x-kubernetes-int-or-string"):
        found.pop("type", None)
        found["anyOf"] = [{"type": "integer"}, {"type": "string"}]
        if "pattern" in found:
            found["anyOf"][1]["pattern"] = found.pop("pattern")
    if "properties" in schema:
        kept = KEPT.get(name) if in_pod or name == "spec" else None
        inside = in_pod or name == "template"
        found["properties"] = {
            key: {}
            if key in CUT or (in_pod and kept is not None and key not in kept)
            else reduced(value, key, inside)
            for key, value in schema["properties"].items()
        }
        found["additionalProperties"] = False
        if name == "metadata":
            found.pop("additionalProperties")
    elif isinstance(extra := schema.get("additionalProperties"), dict):
        found["additionalProperties"] = reduced(extra, "", in_pod)
    if "items" in schema:
        found["items"] = reduced(schema["items"], name, in_pod)
    return found


def main() -> None:
    path, version, commit = sys.argv[1:]
    crd = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
    (v1,) = (item for item in crd["spec"]["versions"] if item["name"] == "v1")
    source = f"https://github.com/ray-project/kuberay/blob/{commit}/ray-operator/config/crd/bases/ray.io_rayjobs.yaml"
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$comment": f"Reduced by reduce.py from {source} ({version}, Apache-2.0).",
        **reduced(v1["schema"]["openAPIV3Schema"], "", False),
    }
    schema["properties"]["metadata"] = {"type": "object"}
    target = Path(__file__).with_name("rayjob.schema.json")
    target.write_text(json.dumps(schema, indent=1) + "\n", encoding="utf-8")


main()
