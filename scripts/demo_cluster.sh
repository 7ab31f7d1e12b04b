#!/bin/sh
# Four containers as a cluster: check them, start Ray on them, run a job on all, stop everything.
#
#   scripts/demo_cluster.sh IMAGE [--keep]
#
# IMAGE is the cpu image (`make image-cpu` prints its name). --keep leaves the containers up and
# prints how to open a shell in them and how to stop them. Needs docker compose, or docker-compose, and
# ssh-keygen; REPRISE_ENGINE names another docker, DEMO_OVERRIDE a further compose file.
set -eu
cd "$(dirname "$0")/.."
image=${1:?name the image}
keep=${2:-}
engine=${REPRISE_ENGINE:-docker}
python=${DEMO_PYTHON:-/opt/reprise/.venv-rehearsal/bin/python}
reprise=${DEMO_REPRISE:-/opt/reprise/.venv/bin/reprise}

if "$engine" compose version >/dev/null 2>&1; then
    compose="$engine compose"
elif command -v docker-compose >/dev/null 2>&1; then
    compose=docker-compose
elif [ -x .venv/bin/docker-compose ]; then
    compose=.venv/bin/docker-compose
else
    echo 'error: expected docker compose, found neither it nor docker-compose' >&2
    echo "    fix: install the compose plug-in of docker, or: scripts/venv.sh dev" >&2
    exit 2
fi
# shellcheck disable=SC2086 # two words
compose() { $compose -f docker/compose.yaml ${DEMO_OVERRIDE:+-f "$DEMO_OVERRIDE"} "$@"; }

umask 077
mkdir -p .cache
DEMO=$(mktemp -d "$PWD/.cache/demo-XXXXXX")
REPRISE_IMAGE=$image
export DEMO REPRISE_IMAGE

down() {
    compose down --volumes --timeout 2 >"$DEMO/down.log" 2>&1 || cat "$DEMO/down.log" >&2
    rm -rf "$DEMO"
}
trap 'down' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

say() { printf '%s  %s\n' "$(date +%H:%M:%S)" "$1" >&2; }
on_head() { compose exec -T head "$@"; }

say 'keys'
mkdir "$DEMO/operator"
for name in client head worker1 worker2 worker3; do
    ssh-keygen -q -t ed25519 -N '' -C "$name" -f "$DEMO/$name"
    [ "$name" = client ] ||
        printf '[%s]:2222 %s\n' "$name" "$(cut -d ' ' -f 1,2 "$DEMO/$name.pub")" >>"$DEMO/operator/known_hosts"
done
cp "$DEMO/client.pub" "$DEMO/authorized_keys"
cat >"$DEMO/operator/ssh_config" <<CONFIG
Host *
  Port 2222
  User root
  IdentityFile /run/secrets/client
  IdentitiesOnly yes
  UserKnownHostsFile /run/operator/known_hosts
CONFIG
cat >"$DEMO/operator/site.toml" <<SITE
machine = "cpu"
[ssh]
config = "/run/operator/ssh_config"
[paths]
python = "$python"
SITE
printf '%s slots=1\n' head worker1 worker2 worker3 >"$DEMO/operator/hostfile"
cp docker/demo_job.py "$DEMO/operator/"
chmod -R go+rX "$DEMO/operator"

say 'four containers'
compose up --detach --wait --quiet-pull >"$DEMO/up.log" 2>&1 || { cat "$DEMO/up.log" >&2; exit 1; }
say 'doctor and Ray'
on_head "$reprise" cluster up /run/operator/hostfile
say 'a job on all four'
# `cluster up` prints the path of the token; Ray's own client reads it from there.
# shellcheck disable=SC2016 # expanded on the head
on_head sh -eu -c 'RAY_AUTH_MODE=token RAY_AUTH_TOKEN_PATH=$(echo "$HOME"/.local/state/reprise/clusters/*/token)
    export RAY_AUTH_MODE RAY_AUTH_TOKEN_PATH
    exec "$1" -m ray.scripts.scripts job submit --address "http://$(hostname -i):8265" \
        -- "$1" /run/operator/demo_job.py' sh "$python"
if [ "$keep" = --keep ]; then
    trap - EXIT INT TERM HUP
    printf 'shell:  %s exec head bash\n' "$compose -f docker/compose.yaml"
    printf 'stop:   DEMO=%s REPRISE_IMAGE=%s %s down --volumes && rm -r %s\n' \
        "$DEMO" "$image" "$compose -f docker/compose.yaml" "$DEMO"
    exit 0
fi
say 'stopping Ray'
on_head "$reprise" cluster down /run/operator/hostfile
say 'stopping the containers'
