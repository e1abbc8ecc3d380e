#!/bin/sh
# What `systemctl reload parlour` runs, as root: puts the present config and secrets where the running daemon looks for them, and tells it.
#
# systemd hands credentials over when a unit starts and not again (before its version 258 there is no way to ask for it). So this makes a
# folder that belongs to root, for the daemon's user to read in and nobody to write in: nothing of it is in the daemon's hand.
set -eu
umask 077

config="${DESTDIR:-}/etc/parlour"
fresh="$PARLOUR_FRESH_CREDENTIALS"
owner="$(stat -c %u "/proc/$MAINPID")"

rm -rf "$fresh"
mkdir "$fresh"
install -m 400 -o "$owner" "$config/config.toml" "$fresh/config.toml"
for file in "$config"/secrets/*; do
    if [ -f "$file" ] && [ ! -L "$file" ]; then
        install -m 400 -o "$owner" "$file" "$fresh/PARLOUR_${file##*/}"
    fi
done
chmod 711 "$fresh"
kill -HUP "$MAINPID"
