#!/bin/sh
# Create or repair one of the two Python environments; when nothing changed, return at once.
#
#   scripts/venv.sh operator|dev|rehearsal [--python PYTHON]
#
# operator   .venv            the packages of `reprise`
# dev        .venv            the same, with tests and linters
# rehearsal  .venv-rehearsal  torch, vLLM (CPU), verl, Ray and the plug-ins of plugins/
#
# REPRISE_INDEX_URL, REPRISE_EXTRA_INDEX_URL  a site's own package index, and further ones
# REPRISE_WHEELS                              a folder of wheels to use instead of any index
# REPRISE_BYTECODE=all                        compile every module now, not only the usual ones
# pip installs the locked uv (requirements/uv.txt) first, and uv then installs everything else with
# the machine's own pip settings (scripts/pip_settings.py). Where uv fails, pip installs.
set -eu

die() {
    printf 'error: %s\n' "$1" >&2
    printf '    fix: %s\n' "$2" >&2
    exit "${3:-1}"
}

usage() { sed -n '2,15s/^#\{1,\} \{0,1\}//p' "$0"; }

kind='' python=''
while [ $# -gt 0 ]; do
    case $1 in
        operator | dev | rehearsal) kind=$1 ;;
        --python)
            [ $# -ge 2 ] || die '--python needs a value' "$0 $kind --python python3.11" 2
            python=$2
            shift
            ;;
        -h | --help) usage; exit 0 ;;
        *) die "unknown argument: $1" "$0 operator|dev|rehearsal [--python PYTHON]" 2 ;;
    esac
    shift
done
[ -n "$kind" ] || die 'no environment named' "$0 operator|dev|rehearsal [--python PYTHON]" 2

cd "$(dirname "$0")/.."
root=$PWD
case $kind in
    rehearsal) venv=.venv-rehearsal inputs='requirements/rehearsal.txt requirements/rehearsal-cuda.txt' ;;
    *) venv=.venv inputs="requirements/operator.txt pyproject.toml" ;;
esac
dev_inputs='requirements/operator.txt requirements/dev.txt pyproject.toml'
[ "$kind" != dev ] || inputs=$dev_inputs
py=$venv/bin/python
stamps=$venv/.reprise

version_of() {
    "$1" -c 'import sys; print("%d.%d.%d" % sys.version_info[:3])' 2>/dev/null </dev/null || true
}

supported() { case $(version_of "$1") in 3.11.* | 3.12.*) return 0 ;; *) return 1 ;; esac }

# The interpreter to build on: the one given, else python3, else one by its full name.
choose_python() {
    for candidate in ${python:+"$python"} ${python:-python3 python3.11 python3.12}; do
        if supported "$candidate"; then
            printf '%s\n' "$candidate"
            return
        fi
    done
    found=$(version_of "${python:-python3}")
    die "expected Python 3.11 or 3.12, found ${found:-none} as ${python:-python3}" \
        "install one of them, or name it: $0 $kind --python /path/to/python3.11" 2
}

# What an environment was made from. The folder is part of it: an environment cannot be moved.
stamp_of() {
    # shellcheck disable=SC2086 # a list of our own file names
    { printf '%s\n%s\n' "$root" "$(version_of "$py")"; cat $1; } | sha256sum | cut -d ' ' -f 1
}

plugin_stamp() {
    [ -f plugins/pyproject.toml ] || { echo none; return; }
    find plugins -name __pycache__ -prune -o -name '*.egg-info' -prune -o -path plugins/build -prune \
        -o -type f -print | LC_ALL=C sort | tr '\n' '\0' | xargs -0 sha256sum | sha256sum | cut -d ' ' -f 1
}

has_stamp() { [ -f "$stamps/$1" ] && [ "$(cat "$stamps/$1")" = "$2" ]; }

base_current() {
    [ -x "$py" ] || return 1
    [ -z "$python" ] || [ "$(version_of "$python")" = "$(version_of "$py")" ] || return 1
    has_stamp "$kind" "$(stamp_of "$inputs")" && return
    # The test environment holds all that the operator's does.
    [ "$kind" = operator ] && has_stamp dev "$(stamp_of "$dev_inputs")"
}

plugins_current() { [ "$kind" != rehearsal ] || has_stamp plugins "$(plugin_stamp)"; }

if base_current && plugins_current; then exit 0; fi

# A bundle for a machine without an index put the operator's packages next to the project.
if [ "$kind" = operator ] && [ -f ../operator/reprise-site.json ]; then
    exec scripts/gpu/operator_env.py
fi

# From here on something is installed.

start=$(date +%s)
say() { printf '%s %4ds  %s\n' "$venv" "$(($(date +%s) - start))" "$1" >&2; }

mkdir -p .cache 2>/dev/null && [ -w .cache ] && [ -w . ] ||
    die "$venv must be created or repaired, but $(id -un) cannot write to $root" \
        "as the owner of the checkout: $0 $kind"
work=.cache/setup-$kind
log=$work.log
job=''
# A job in the background ignores the interrupt key, so it is ended by its number.
stop_job() { [ -z "$job" ] || kill "$job" 2>/dev/null || true; }
trap 'stop_job; exit 130' INT
trap 'stop_job; exit 143' TERM HUP

builder=$(choose_python)

# One set-up at a time for each environment. The lock belongs to the open file, so it goes with us.
exec 9>".cache/$venv.lock"
take_lock='import fcntl, sys; fcntl.flock(9, fcntl.LOCK_EX | int(sys.argv[1]))'
if ! "$builder" -c "$take_lock" 4 2>/dev/null; then
    say 'another set-up of it is at work; waiting'
    "$builder" -c "$take_lock" 0
    if base_current && plugins_current; then exit 0; fi
fi
: >"$log"

# Run a command with its output in the log, and say every 15 seconds how far it is.
step() {
    title=$1
    shift
    say "$title"
    printf '\n== %s\n' "$title" >>"$log"
    "$@" >>"$log" 2>&1 </dev/null 9>&- &
    job=$!
    ticks=0
    while kill -0 "$job" 2>/dev/null; do
        sleep 0.2
        ticks=$((ticks + 1))
        if [ $((ticks % 75)) -eq 0 ]; then
            say "  ... at work"
        fi
    done
    if wait "$job"; then
        job=''
        return
    fi
    job=''
    tail -n 15 "$log" >&2
    die "$venv: '$title' failed; the whole output is in $log" \
        'fix the cause (network, index, disk space) and repeat the command; it continues where it stopped'
}

# A site's index counts for both clients. Every file is checked against its hash, so it does not
# matter which index a version comes from.
if [ -n "${REPRISE_INDEX_URL:-}" ]; then
    export PIP_INDEX_URL="$REPRISE_INDEX_URL" UV_DEFAULT_INDEX="$REPRISE_INDEX_URL"
fi
if [ -n "${REPRISE_EXTRA_INDEX_URL:-}" ]; then
    export PIP_EXTRA_INDEX_URL="$REPRISE_EXTRA_INDEX_URL" UV_INDEX="$REPRISE_EXTRA_INDEX_URL"
fi
if [ -n "${REPRISE_WHEELS:-}" ]; then
    # As a URL: pip would take a blank in the folder's name for the end of it.
    wheels=file://$(cd "$REPRISE_WHEELS" && pwd | sed 's/%/%25/g; s/ /%20/g; s/#/%23/g; s/,/%2C/g')
    export PIP_NO_INDEX=1 PIP_FIND_LINKS="$wheels"
fi
export UV_INDEX_STRATEGY=unsafe-best-match
export PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_INPUT=1
# Files of uv's cache and of the environment may be the same: half the writing. uv copies where the
# two folders are on different file systems.
export UV_LINK_MODE="${UV_LINK_MODE:-hardlink}"
# uv ends where it cannot write its cache: a home that is read-only, or is none.
if [ -z "${UV_CACHE_DIR:-}" ]; then
    uv_cache=${XDG_CACHE_HOME:-${HOME:-/nonexistent}/.cache}
    mkdir -p "$uv_cache/uv" 2>/dev/null && [ -w "$uv_cache/uv" ] || export UV_CACHE_DIR="$root/.cache/uv"
fi

pip_install() {
    "$py" -m pip install --progress-bar off --no-deps --no-build-isolation "$@"
}

# Install the locked uv into the environment. A machine that cannot have it goes on with pip.
uv='' uv_index=''
install_uv() {
    [ -f requirements/uv.txt ] || return 0
    locked=$(sed -n 's/^uv==\([0-9.]*\).*/\1/p' requirements/uv.txt)
    case $("$venv/bin/uv" --version 2>/dev/null) in "uv $locked" | "uv $locked "*) return 0 ;; esac
    "$py" -m pip install --progress-bar off --no-deps --require-hashes -r requirements/uv.txt ||
        echo 'the locked uv is not available: the uv of PATH installs, or pip'
}

# Take the locked uv, else the one on PATH; pip's settings become uv's.
choose_uv() {
    for candidate in "$venv/bin/uv" uv; do
        if [ -z "$uv" ] && "$candidate" --version >/dev/null 2>&1 </dev/null; then uv=$candidate; fi
    done
    [ -n "$uv" ] || return 0
    # Without them uv could ask an index that the site does not have: then pip installs.
    settings=$("$py" scripts/pip_settings.py 2>>"$log") || { uv=''; return 0; }
    eval "$settings"
    if [ -n "${UV_NO_INDEX:-}" ]; then uv_index=--no-index; fi
}

uv_install() {
    [ -n "$uv" ] || return 1
    "$uv" pip install --python "$py" --no-deps --no-build-isolation ${uv_index:+"$uv_index"} "$@"
}

install() {
    uv_install "$@" && return
    [ -z "$uv" ] || echo 'uv failed; pip may know an index or a folder that uv does not: trying pip'
    pip_install --no-compile "$@"
}

# Compile at once, on all cores: a rehearsal starts a dozen processes that import torch, and each
# would do it again. Left out is what a run hardly imports (45 % of it); Python compiles a module
# of it at its first use. REPRISE_BYTECODE=all: for an environment that nobody can write to later.
compile_bytecode() {
    skip='/tests?/|/testing/_internal/|/(anthropic|numba|pip|tensorboard|mcp|supervisor|dns'
    skip="$skip|pygments/lexers|sympy/physics|openai/(resources|types)/beta|transformers/models"
    skip="$skip|vllm/models|vllm/model_executor/models|ray/(rllib|data|serve|tune|train|llm))/"
    if [ "${REPRISE_BYTECODE:-}" = all ]; then skip='^$'; fi
    "$py" -m compileall -q -j 0 -x "$skip" "$venv"/lib/python3*/site-packages ||
        echo 'some files cannot be compiled (templates, other Python versions)'
}

# The lines of one package in a requirements file, or (with `!`) all the others.
lines_of() {
    awk -v name="$2" -v other="${3:-}" '
        /^[A-Za-z0-9]/ { keep = (index($0, name "==") == 1); if (other == "!") keep = !keep }
        keep' "$1"
}

make_venv() {
    if [ -d "$venv" ] && [ ! -f "$stamps/root" ] && ! { [ -f "$venv/pyvenv.cfg" ] && supported "$py"; }; then
        die "$venv exists and was not created by this script" "move it away: mv $venv $venv.old"
    fi
    if [ -x "$py" ] && same_place_and_python; then
        "$py" -m pip --version >/dev/null 2>&1 && return
        "$py" -m ensurepip >>"$log" 2>&1 && return
    fi
    mkdir -p "$stamps"
    printf '%s\n' "$root" >"$stamps/root"
    step "environment on Python $(version_of "$builder")" create_venv
}

same_place_and_python() {
    [ "$(cat "$stamps/root" 2>/dev/null || echo "$root")" = "$root" ] || return 1
    supported "$py" || return 1
    [ -z "$python" ] || [ "$(version_of "$python")" = "$(version_of "$py")" ]
}

create_venv() {
    find "$venv" -mindepth 1 -maxdepth 1 ! -name .reprise -exec rm -rf {} +
    "$builder" -m venv "$venv" && return
    echo 'the venv module failed (on Debian: apt-get install python3-venv); trying uv'
    uv venv --allow-existing --seed --python "$builder" "$venv"
}

install_locked() {
    file=requirements/$kind.txt
    named=$file
    step 'uv' install_uv
    choose_uv
    lines_of "$file" setuptools >"$work.build.txt"
    step 'build tools' install --require-hashes -r "$work.build.txt"
    lines_of "$file" setuptools ! >"$work.txt"
    count=$(grep -c '==' "$work.txt")
    if [ "$kind" != rehearsal ]; then
        step "$count packages" install --require-hashes -r "$work.txt"
    else
        lines_of "$file" torch >"$work.torch.txt"
        lines_of "$work.txt" torch ! >"$work.rest.txt"
        cpu_build "$work.txt" >"$work.cpu.txt"
        step "$count packages" install_with_torch
        # A build with CUDA cannot even be imported without its libraries.
        if ! grep -q '^cuda.*= None' "$venv"/lib/python3*/site-packages/torch/version.py; then
            named="$named requirements/rehearsal-cuda.txt"
            say '  no CPU build of torch was found: its CUDA libraries are needed as well'
            step 'CUDA libraries of torch' install --require-hashes -r requirements/rehearsal-cuda.txt
        fi
    fi
    step 'bytecode' compile_bytecode
    # shellcheck disable=SC2086 # a list of our own file names
    step 'what the lock no longer names' "$py" scripts/venv_prune.py $named
}

# The lines of a requirements file, with torch's build for CPUs by its own name. Left alone, pip
# takes the file whose hash its index announces, so that a CPU build in a folder loses against a
# CUDA build on the index: the CPU build is asked for first, with the same hashes.
cpu_build() { sed 's/^\(torch==[0-9.]*\)/\1+cpu/' "$1"; }

install_with_torch() {
    # One call for all: uv unpacks torch while it still downloads the others.
    uv_install --require-hashes -r "$work.cpu.txt" && return
    install_torch && install --require-hashes -r "$work.rest.txt"
}

install_torch() {
    cpu_build "$work.torch.txt" >"$work.torch-cpu.txt"
    pip_install --no-compile --require-hashes -r "$work.torch-cpu.txt" && return
    # With a constraint on torch in the site's pip settings, pip calls the missing build a conflict.
    grep -qE 'No matching distribution found for torch|ResolutionImpossible' "$log" || return
    echo 'no CPU build of torch in the index or the folder; installing the public (CUDA) build'
    install --require-hashes -r "$work.torch.txt"
}

# Built from a copy: a build folder left in plugins/ could restore a deleted module.
install_plugins() {
    rm -rf "$work.plugins"
    cp -R plugins "$work.plugins"
    rm -rf "$work.plugins/build"
    pip_install --no-index --force-reinstall "./$work.plugins"
    rm -rf "$work.plugins"
}

base_is_current=''
if base_current; then base_is_current=1; fi
if [ -z "$base_is_current" ]; then
    rm -f "$stamps/operator" "$stamps/dev" "$stamps/rehearsal" "$stamps/plugins"
    make_venv
    mkdir -p "$stamps"
    printf '%s\n' "$root" >"$stamps/root"
    install_locked
    if [ "$kind" != rehearsal ]; then
        step 'reprise itself' pip_install --no-index --editable .
    fi
    stamp_of "$inputs" >"$stamps/$kind.part"
    mv "$stamps/$kind.part" "$stamps/$kind"
fi
if [ "$kind" = rehearsal ] && ! plugins_current; then
    plugins=$(plugin_stamp)
    [ "$plugins" = none ] || step 'plug-ins' install_plugins
    printf '%s\n' "$plugins" >"$stamps/plugins.part"
    mv "$stamps/plugins.part" "$stamps/plugins"
fi
rm -f "$work".*txt
say 'ready'
