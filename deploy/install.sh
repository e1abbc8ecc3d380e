#!/usr/bin/env bash
# Installs and upgrades Parlour on a machine with systemd, and goes back: see `usage`. Needs Python 3.11 or newer with pip and venv.
set -euo pipefail
umask 022

usage() {
    cat <<'TEXT'
deploy/install.sh [install]   install this source, or upgrade to it; run again, it changes nothing
deploy/install.sh rollback    go back to the release before; run again, it goes forth

    /opt/parlour/releases/...   each release with its own .venv; the two newest are kept
    /opt/parlour/current        the one that runs; `previous` is the one before
    /etc/parlour/config.toml    made from the example if it is not there; secrets/ beside it
    parlour.service             in /etc/systemd/system; your own changes belong into a drop-in

DESTDIR=/folder tries it out below that folder, without root and without systemd: /folder/usr/local/bin/parlour is the command then, and
takes --config /folder/etc/parlour/config.toml. PYTHON=/path says which Python to take.
TEXT
}

say() { printf '%s\n' "$*" >&2; }
fail() {
    say "$*"
    exit 1
}

source="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)"
DESTDIR="${DESTDIR:-}"
if [ -n "$DESTDIR" ]; then DESTDIR="$(realpath -m -- "$DESTDIR")"; fi
root="$DESTDIR/opt/parlour"
etc="$DESTDIR/etc/parlour"
unit="$DESTDIR/etc/systemd/system/parlour.service"
command="$DESTDIR/usr/local/bin/parlour"
parts=(gateway channels docs deploy dev pyproject.toml requirements.lock requirements-local.lock config.example.toml README.md CHANGELOG.md LICENSE)

# ------------------------------------------------------------------------------------------------------------------- releases

files() { (cd "$source" && find "${parts[@]}" -type f ! -path '*/__pycache__/*' -print0 | LC_ALL=C sort -z); }

# The version, and what the files are: the same source is the same release.
release_name() {
    local version sum
    version="$(sed -n 's/^__version__ = "\(.*\)"$/\1/p' "$source/gateway/__init__.py")"
    sum="$(files | (cd "$source" && xargs -0 sha256sum) | sha256sum | cut -c1-8)"
    [ -n "$version" ] || fail "$source is no source of Parlour"
    printf '%s-%s\n' "$version" "$sum"
}

target() { basename "$(readlink "$root/$1" 2>/dev/null || true)"; }

# A link is replaced in one step: there is always one.
point() {
    ln -sfn "releases/$2" "$root/$1.new"
    mv -T "$root/$1.new" "$root/$1"
}

# The service sees no /home and no /root (ProtectHome), so that a Python that lies there is none for it.
find_python() {
    local python
    for python in /usr/bin/python3 /usr/bin/python3.1[1-9] /usr/local/bin/python3 /usr/local/bin/python3.1[1-9]; do
        if [ -x "$python" ] && "$python" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
            case "$(readlink -f "$python")" in /home/* | /root/*) ;; *) printf '%s\n' "$python" && return ;; esac
        fi
    done
    fail "needs Python 3.11 or newer with venv, where the service can run it (Debian: apt install python3-venv); PYTHON=/path names another"
}

# What did not get to run is not left behind: neither half of a release, nor one that does not take the config. What runs, and the one
# before, are never touched.
drop() {
    case "$1" in "$(target current)" | "$(target previous)") ;; *) rm -rf "$root/releases/$1" ;; esac
}

build() {
    local place="$root/releases/$1"
    [ -e "$place/.complete" ] && return
    trap "drop '$1'" EXIT
    say "building $place"
    rm -rf "$place"
    mkdir -p "$place"
    files | (cd "$source" && tar --null -T - -cf -) | tar -C "$place" --no-same-owner -xf -
    chmod -R u+rwX,go+rX,go-w "$place"
    PYTHON="${PYTHON:-$(find_python)}" "$place/dev" venv
    "$place/.venv/bin/python" -m compileall -q "$place/gateway" "$place/channels"
    touch "$place/.complete"
    trap - EXIT
}

prune() {
    local place name
    for place in "$root"/releases/*; do
        name="$(basename "$place")"
        case "$name" in "$(target current)" | "$(target previous)") ;; *) rm -rf "$place" ;; esac
    done
}

# -------------------------------------------------------------------------------------------------------------------- config

make_config() {
    install -d -m 700 "$etc" "$etc/secrets"
    if [ ! -e "$etc/config.toml" ]; then
        install -m 600 "$source/config.example.toml" "$etc/config.toml"
        say "made $etc/config.toml from the example: edit it before you start the service"
    fi
}

# A release that does not take the config is not switched to.
check_config() {
    local file secrets=()
    for file in "$etc"/secrets/*; do
        if [ -f "$file" ]; then secrets+=("PARLOUR_${file##*/}_FILE=$file"); fi
    done
    env "${secrets[@]}" STATE_DIRECTORY=/var/lib/parlour "$root/releases/$1/.venv/bin/parlour" check --config "$etc/config.toml" >/dev/null
}

# ------------------------------------------------------------------------------------------------------------------- service

managed() { [ -z "$DESTDIR" ] && [ -d /run/systemd/system ] && command -v systemctl >/dev/null; }

switch_to() {
    local before
    before="$(target current)"
    if [ "$before" != "$1" ]; then
        if [ -n "$before" ] && [ -e "$root/releases/$before/.complete" ]; then point previous "$before"; fi
        point current "$1"
    fi
    install -D -m 644 "$root/current/deploy/parlour.service" "$unit"
    mkdir -p "$(dirname "$command")"
    # Below a DESTDIR the command is the one there.
    ln -sfn "${DESTDIR:+../../..}/opt/parlour/current/.venv/bin/parlour" "$command"
    say "current is $1"
    if [ -n "$DESTDIR" ]; then say "try it: $command check --config $etc/config.toml"; fi
    managed || return 0
    systemctl daemon-reload
    if ! systemctl is-active --quiet parlour; then
        say "start it with: systemctl enable --now parlour"
    elif [ "$before" != "$1" ]; then
        systemctl restart parlour || fail "it did not start: see journalctl -u parlour -n 30; back to $before: $root/current/deploy/install.sh rollback"
    fi
}

# ------------------------------------------------------------------------------------------------------------------ commands

begin() {
    [ -n "$DESTDIR" ] || [ "$(id -u)" = 0 ] || fail "must be run as root (or with DESTDIR, to try it out)"
    mkdir -p "$root/releases"
    exec 9>"$root/.lock"
    flock -n 9 || fail "another install.sh is at work"
}

case "${1:-install}" in
install)
    begin
    name="$(release_name)"
    build "$name" 9>&-
    make_config
    if ! check_config "$name"; then
        drop "$name"
        fail "the config does not fit this release, or the release does not run (see above); nothing was changed${DESTDIR:+ below $DESTDIR}"
    fi
    switch_to "$name"
    prune
    ;;
rollback)
    begin
    name="$(target previous)"
    [ -n "$name" ] && [ -e "$root/releases/$name/.complete" ] || fail "there is no release to go back to"
    check_config "$name" || fail "the config does not fit $name (see above); nothing was changed"
    switch_to "$name"
    ;;
-h | --help | help) usage ;;
*)
    usage >&2
    exit 2
    ;;
esac
