#!/bin/sh
# Read the state of one machine and print it. Read only, except for one file (P_NONCE, P_STORE).
#
# Output: `= KEY VALUE` a fact, `? KEY REASON` a fact that could not be read. The script does not
# judge; reprise/cluster/doctor/facts.py reads it. Fed to `sh -s` behind assignments of
# the variables in capitals; lists hold one entry a line (P_SHARED: NAME=PATH).
# Every foreign command has a time limit: a driver that hangs must not hang the probe.
set -u
PATH=$PATH:/usr/sbin:/sbin:/usr/local/sbin
LC_ALL=C
export PATH LC_ALL

: "${P_PYTHON=python3}" "${P_VERSIONS=}" "${P_HEAD=}" "${P_PORTS=}" "${P_PATHS=}" "${P_TREES=}"
: "${P_SHARED=}" "${P_NONCE=}" "${P_STORE=}" "${P_MARK=}" "${P_ENGINE=docker}" "${P_IMAGE=}"
: "${P_CONTAINER=}" "${P_NAMES=}" "${P_PIDS=}"

fact() { printf '= %s %s\n' "$1" "$2"; }
blank() { printf '? %s %s\n' "$1" "$2"; }
has() { command -v "$1" >/dev/null 2>&1; }
if has timeout; then limit() { timeout -k 1 "$@"; }; else limit() { shift; "$@"; }; fi

# KEY SECONDS COMMAND...: each line of the command's output is one fact.
lines() {
    key=$1 seconds=$2
    shift 2
    if ! has "$1"; then blank "$key" "$1: command not found"; return; fi
    text=$(limit "$seconds" "$@" 2>&1)
    code=$?
    case $code in
        0) [ -z "$text" ] || printf '%s\n' "$text" | sed "s/^/= $key /" ;;
        124 | 137) blank "$key" "$1 gave no answer within $seconds s" ;;
        *) blank "$key" "$1 failed ($code): $(printf '%s' "$text" | tail -n 1)" ;;
    esac
}

# As `lines`, but what a command printed before it failed is kept: one GPU that cannot be read must
# not hide the others. Leaves the exit status in `code`.
rows() {
    key=$1 seconds=$2
    shift 2
    if ! has "$1"; then code=127; blank "$key" "$1: command not found"; return; fi
    text=$(limit "$seconds" "$@" 2>&1)
    code=$?
    [ -z "$text" ] || printf '%s\n' "$text" | sed "s/^/= $key /"
    case $code in
        0) ;;
        124 | 137) blank "$key" "$1 gave no answer within $seconds s" ;;
        *) blank "$key" "$1 failed ($code): $(printf '%s' "$text" | tail -n 1)" ;;
    esac
}

system() {
    fact clock.begin "$(date +%s)"
    fact hostname "$(uname -n)"
    fact kernel "$(uname -sr)"
    fact machine "$(uname -m)"
    fact user "$(id -un)"
    if [ -r /etc/os-release ]; then
        fact os "$(sed -n 's/^PRETTY_NAME=//p' /etc/os-release | tr -d '"')"
    else
        blank os '/etc/os-release cannot be read'
    fi
    fact cpus "$(grep -c '^processor' /proc/cpuinfo)"
    grep -E '^(MemTotal|MemAvailable):' /proc/meminfo | sed 's/^/= memory /'
    [ ! -r /sys/fs/cgroup/memory.max ] || fact memory.limit "$(cat /sys/fs/cgroup/memory.max)"
    [ ! -r /proc/sys/kernel/pid_max ] || fact pids.max "$(cat /proc/sys/kernel/pid_max)"
    group=/sys/fs/cgroup$(sed -n 's/^0:://p' /proc/self/cgroup)/pids.max
    [ ! -r "$group" ] || fact pids.limit "$(cat "$group")"
    grep -E '^Max (open files|processes|locked memory) ' /proc/self/limits | sed 's/^/= limit /'
}

network() {
    lines address 5 ip -o addr show
    lines link 5 ip -o link show
    lines hostname-i 5 hostname -I
    [ -z "$P_HEAD" ] || lines route 5 ip -o route get "$P_HEAD"
    for path in /sys/class/net/*; do
        name=${path##*/}
        state=$(cat "$path/operstate" 2>/dev/null)
        speed=$(cat "$path/speed" 2>/dev/null)
        fact interface "$name ${state:-unknown} ${speed:--1}"
    done
    fact bios "$(cat /sys/class/dmi/id/board_name 2>/dev/null), $(cat /sys/class/dmi/id/bios_version 2>/dev/null)"
    for device in /sys/class/infiniband/*; do
        [ ! -r "$device/fw_ver" ] || fact rdma.firmware "${device##*/} $(cat "$device/board_id" 2>/dev/null | tr ' ' '_') $(cat "$device/fw_ver")"
    done
    for port in /sys/class/infiniband/*/ports/*; do
        [ -d "$port" ] || continue
        device=${port#/sys/class/infiniband/}
        fact rdma "${device%%/*} ${port##*/} $(cat "$port/state" 2>/dev/null | tr ' ' '_') $(cat "$port/rate" 2>/dev/null | tr ' ' '_') $(cat "$port/link_layer" 2>/dev/null)"
        errors=
        for name in symbol_error link_downed link_error_recovery port_rcv_errors \
            local_link_integrity_errors excessive_buffer_overrun_errors; do
            value=$(cat "$port/counters/$name" 2>/dev/null) && errors="$errors $name=$value"
        done
        [ -z "$errors" ] || fact rdma.errors "${device%%/*}:${port##*/}$errors"
        for gid in "$port"/gids/*; do
            value=$(cat "$gid" 2>/dev/null) || continue
            case $value in '' | 0000:0000:0000:0000:0000:0000:0000:0000) continue ;; esac
            kind=$(cat "$port/gid_attrs/types/${gid##*/}" 2>/dev/null | tr -d ' ')
            fact gid "${device%%/*} ${port##*/} ${gid##*/} $value ${kind:-unknown}"
        done
    done
}

listening() {
    if [ -z "$P_PORTS" ]; then
        :
    elif has ss; then
        # One call for all ports: `sport = :A or sport = :B`.
        filter=$(printf '%s\n' "$P_PORTS" | sed 's/^/or sport = :/' | tr '\n' ' ')
        # shellcheck disable=SC2086 # words of a filter
        if found=$(limit 5 ss -Hltnp ${filter#or } 2>&1); then
            [ -z "$found" ] || printf '%s\n' "$found" | sed 's/^/= listen /'
        else
            blank listen "ss failed: $found"
        fi
    else
        cat /proc/net/tcp /proc/net/tcp6 2>/dev/null | awk -v ports="$(printf '%s' "$P_PORTS" | tr '\n' ' ')" '
            BEGIN { count = split(ports, list, " "); for (i = 1; i <= count; i++) hex[sprintf("%04X", list[i])] = list[i] }
            $4 == "0A" { n = split($2, part, ":"); if (part[n] in hex) print "= listen LISTEN 0 0 *:" hex[part[n]] " *:* uid=" $8 }'
    fi
    # Only what is needed of a command line: others' arguments may hold secrets.
    if has ps; then
        found=$(limit 5 ps -ww -eo pid=,user:32=,lstart=,comm=,args= 2>&1) || blank ray "ps failed"
        printf '%s\n' "$found" | awk '
            $8 ~ /^(gcs_server|raylet)$/ {
                session = ""
                if (match($0, /session_[0-9_-]+/)) session = substr($0, RSTART, RLENGTH)
                # The folder of a cluster that reprise started.
                folder = ""
                if (match($0, /\/[^ =,:"]*\/rp-[0-9a-f]+\//)) folder = substr($0, RSTART, RLENGTH - 1)
                print "= ray " $1, $2, $3 "_" $4 "_" $5 "_" $6 "_" $7, $8, (session == "" ? "-" : session), folder
            }
            # The kernel cuts a name after 15 characters.
            $8 ~ /^(chronyd|ntpd|openntpd|ntpd-rs-daemon|systemd-timesyn|ptp4l|phc2sys)$/ {
                print "= timesync " $8
            }
            $1 == 1 { print "= init " $8 }'
    else
        blank ray 'ps: command not found'
    fi
    family reprise REPRISE_CLUSTER=
    [ -z "$P_MARK" ] || family own "REPRISE_CLUSTER=$P_MARK"
}

# KEY TEXT: processes with the text in their environment, and their children: a worker's title can
# have overwritten its environment. Environments of other users cannot be read.
family() {
    marked=$(grep -lF "$2" /proc/[0-9]*/environ 2>/dev/null | cut -d/ -f3 | tr '\n' ' ')
    [ -n "$marked" ] || return 0
    cat /proc/[0-9]*/stat 2>/dev/null |
        sed -n 's/^\([0-9]*\) (\(.*\)) . \([0-9]*\) .*/\1 \3 \2/p' | awk -v marked="$marked" -v key="$1" '
        BEGIN { count = split(marked, list, " "); for (i = 1; i <= count; i++) mine[list[i]] = 1 }
        { parent[$1] = $2; name[$1] = $3 }
        END {
            do {
                more = 0
                for (pid in parent)
                    if (!(pid in mine) && (parent[pid] in mine)) { mine[pid] = 1; more = 1 }
            } while (more)
            for (pid in mine) if (pid in name) print "= " key " " pid, name[pid]
        }'
}

# GPUs on the PCI bus and device files of drivers: they show a GPU that no tool was asked for, or that
# fell off the driver. NVIDIA, Moore Threads and AMD's accelerators; AMD's displays do not count.
devices() {
    if [ -d /sys/bus ]; then fact pci.read yes; else blank pci.read '/sys is not mounted'; fi
    for path in /sys/bus/pci/devices/*; do
        if ! { read -r vendor <"$path/vendor" && read -r class <"$path/class"; } 2>/dev/null; then
            continue
        fi
        case $vendor:$class in
            0x10de:0x03* | 0x1ed5:0x03* | 0x1ed5:0x12* | 0x1002:0x12* | 0x1002:0x0380*)
                driver=$(readlink "$path/driver" 2>/dev/null)
                fact pci "$vendor ${path##*/} ${driver##*/}" ;;
        esac
    done
    for path in /dev/nvidia[0-9]*; do [ ! -e "$path" ] || fact device "0x10de $path"; done
    for path in /dev/mtgpu.[0-9]*; do [ ! -e "$path" ] || fact device "0x1ed5 $path"; done
}

space() {
    # For a folder that does not exist yet, its nearest existing parent.
    printf '%s\n' "$P_PATHS" | while read -r path; do
        [ -n "$path" ] || continue
        place=$path
        while [ ! -e "$place" ] && [ "$place" != / ]; do place=$(dirname "$place"); done
        numbers=$(limit 5 df -Pk "$place" 2>/dev/null | awk 'NR == 2 { print $2, $4 }')
        if [ -z "$numbers" ]; then blank "disk" "$path: df gave no answer"; continue; fi
        files=$(limit 5 df -Pi "$place" 2>/dev/null | awk 'NR == 2 { print $2 == 0 ? "-" : $4 }')
        [ -w "$place" ] && mode=w || mode=r
        [ -e "$path" ] && there=present || there=missing
        fact disk "$numbers $mode $there $path"
        fact inodes "${files:--} $path"
    done
    if [ -d /dev/shm ]; then
        fact shm "$(df -Pk /dev/shm | awk 'NR == 2 { print $2, $4 }')"
        for path in /dev/shm/plasma* /dev/shm/torch_* /dev/shm/nccl* /dev/shm/ray*; do
            [ ! -e "$path" ] || fact shm.file "$path"
        done
    else
        blank shm '/dev/shm is missing'
    fi
}

settings() {
    # P_NAMES: the variables of accelerators, one a line.
    for name in http_proxy https_proxy all_proxy HTTP_PROXY HTTPS_PROXY ALL_PROXY no_proxy NO_PROXY \
        TP_SOCKET_IFNAME RAY_ADDRESS TMPDIR LD_LIBRARY_PATH $P_NAMES; do
        eval "value=\${$name-}"
        # A proxy's address may hold a password.
        [ -z "$value" ] || printf '%s\n' "$value" | tr '\n' ' ' | sed "s#//[^/@ ]*@#//***@#g; s/^/= env $name /; s/\$/\n/"
    done
}

# UNIT of systemd, as `systemctl is-active` says it.
service() {
    if has systemctl; then
        fact "$1" "$(limit 5 systemctl is-active "$2" 2>&1 | head -n 1)"
    else
        blank "$1" 'systemctl: command not found'
    fi
}

# KEY NAME...: whether one of these kernel modules is loaded.
module() {
    key=$1 state=no
    shift
    for name in "$@"; do
        if grep -q "^$name " /proc/modules; then state=yes; fi
    done
    fact "$key" "$state"
}

# KEY TEXT: the last lines of the kernel's log with the text. Without KEY.read the log of a machine
# that anybody may not read would look empty.
kernel_log() {
    if log=$(limit 5 dmesg 2>/dev/null); then
        fact "$1.read" yes
        printf '%s\n' "$log" | grep -E "$2" | tail -n 20 | sed "s/^/= $1 /"
    else
        blank "$1.read" 'the kernel log cannot be read (dmesg)'
    fi
}

# The commands of the accelerator (reprise/machines) are defined before this script.
has_question() { [ "$(command -v accelerator_facts)" = accelerator_facts ]; }

owners() {
    # Who runs the processes that hold GPUs: P_PIDS finds their ids in the facts above.
    sed -n "$P_PIDS" | sort -u | while read -r pid; do
        fact owner "$pid $(limit 2 ps -o user:32= -p "$pid" 2>/dev/null || echo unknown)"
    done
}

versions() {
    set -- "$P_PYTHON" -I -
    if [ -n "$P_IMAGE" ]; then
        if ! has "$P_ENGINE"; then blank image "$P_ENGINE: command not found"; return; fi
        # An image that was built on the locked one says so in a label; one that was imported has none.
        lines image 4 "$P_ENGINE" image inspect --format \
            '{{.Id}} {{json .RepoDigests}} {{with .Config.Labels}}{{index . "org.opencontainers.image.base.digest"}}{{end}}' \
            "$P_IMAGE"
        lines engine 4 "$P_ENGINE" info --format '{{json .Runtimes}}'
        if [ -z "$P_CONTAINER" ]; then blank package 'the container is not started'; return; fi
        set -- "$P_ENGINE" exec -i "$P_CONTAINER" "$@"
    elif ! has "$P_PYTHON"; then
        blank package "$P_PYTHON: command not found"
        return
    fi
    if asked=$(printf '%s' "$P_VERSIONS" | limit 5 "$@" 2>&1); then
        printf '%s\n' "$asked" | sed 's/^/= package /'
    else
        blank package "$P_PYTHON: $(printf '%s' "$asked" | tail -n 1)"
    fi
}

checkouts() {
    printf '%s\n' "$P_TREES" | while read -r path; do
        [ -n "$path" ] || continue
        if ! has git; then blank tree "$path git: command not found"; continue; fi
        commit=$(limit 5 git -c safe.directory="$path" -C "$path" rev-parse --verify HEAD 2>&1) ||
            { blank tree "$path $(printf '%s' "$commit" | tail -n 1)"; continue; }
        fact tree "$commit $path"
    done
}

shares() {
    printf '%s\n' "$P_SHARED" | while IFS='=' read -r name path; do
        [ -n "$name" ] || continue
        if [ ! -d "$path" ]; then fact share "$name missing"; continue; fi
        if [ "$P_STORE" = yes ]; then
            if (printf '%s\n' "$P_NONCE" >"$path/.reprise-$P_NONCE") 2>/dev/null; then
                fact share "$name written"
            else
                blank share "$name cannot be written"
            fi
        fi
        [ -r "$path/config.json" ] && has sha256sum && fact share.config "$name $(sha256sum <"$path/config.json" | cut -c1-64)"
    done
    awk '$3 ~ /^(nfs|nfs4|lustre|gpfs|beegfs|ceph|fuse\..*|9p|cifs|wekafs|virtiofs)$/ { print "= mount " $2 " " $3 }' /proc/mounts
}

scratch=$(if has_question; then accelerator_facts; fi)
system
network
listening
devices
space
settings
[ -z "$scratch" ] || printf '%s\n' "$scratch" | grep '^[=?] '
printf '%s\n' "$scratch" | owners
versions
checkouts
shares
fact clock.end "$(date +%s)"
fact complete yes
