#!/bin/sh
# Installs what the tests need from Debian. Does nothing when all of it is present; says what is missing when it cannot install.
set -eu

package() { # the package a tool comes in
    case "$1" in
        setpriv|nsenter|unshare) echo util-linux ;;
        gcc) echo gcc libc6-dev ;;
        psql) echo postgresql ;;
        *) echo "$1" ;;
    esac
}

missing=""
for tool in chromium gcc git openssl psql setpriv nsenter unshare; do
    command -v "$tool" >/dev/null 2>&1 || missing="$missing $(package "$tool")"
done
# A real node and the image, which only root can run and build, need these too; their tests skip where they are missing.
if [ "$(id -u)" = 0 ]; then
    for tool in runc buildah mmdebstrap; do
        command -v "$tool" >/dev/null 2>&1 || missing="$missing $tool"
    done
    [ -x /usr/lib/cni/ptp ] || [ -x /opt/cni/bin/ptp ] || missing="$missing containernetworking-plugins"
fi
[ -z "$missing" ] && exit 0

if command -v apt-get >/dev/null 2>&1 && [ "$(id -u)" = 0 ]; then
    echo "installing:$missing" >&2
    apt-get update -qq
    # shellcheck disable=SC2086
    apt-get install -y -qq --no-install-recommends $missing >/dev/null
else
    echo "missing:$missing; install with your package manager, then run make test again" >&2
    exit 1
fi
