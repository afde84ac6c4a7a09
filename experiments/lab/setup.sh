#!/bin/sh
# What the lab needs of the system: `ip` and `tc`, `ethtool`, and util-linux's `unshare` and `nsenter`.
set -eu
sudo=""
[ "$(id -u)" = 0 ] || sudo=sudo
missing=""
command -v ip >/dev/null && command -v tc >/dev/null || missing="$missing iproute2"
command -v ethtool >/dev/null || missing="$missing ethtool"
command -v unshare >/dev/null && command -v nsenter >/dev/null || missing="$missing util-linux"
if [ -n "$missing" ]; then
    $sudo apt-get update -q
    # shellcheck disable=SC2086
    $sudo apt-get install -y -q --no-install-recommends $missing
fi
