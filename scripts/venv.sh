#!/bin/sh
# Makes a virtual environment with pip in it: venv.sh DIR. Uses what the machine has; says what is missing.
set -eu
dir=$1
python=${PYTHON:-python3}
[ -x "$dir/bin/pip" ] && exit 0
command -v "$python" >/dev/null || { echo "expected $python (3.10 or newer), found none; install Python" >&2; exit 1; }
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 10))' || {
    echo "expected Python 3.10 or newer, found $("$python" --version); set PYTHON=python3.12 or the like" >&2; exit 1; }
make_venv() { rm -rf "$dir"; "$python" -m venv "$dir" >/dev/null 2>&1; }
make_venv && exit 0
# Debian keeps ensurepip in a package of its own.
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    echo "installing Debian's package for virtual environments: apt-get install python3-venv" >&2
    version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
    { apt-get install -y -qq "python$version-venv" || { apt-get update -qq && apt-get install -y -qq "python$version-venv"; }; } >/dev/null 2>&1 || true
    make_venv && exit 0
fi
"$python" -m virtualenv -q "$dir" 2>/dev/null && exit 0
rm -rf "$dir"
echo "expected a virtual environment in $dir, found that $python -m venv fails; install python3-venv (Debian: apt-get install python3-venv)" >&2
exit 1
