#!/bin/sh
# Lays out the root file system of the node image: a Python, its environment, `timeout`, the libraries that they need,
# and nothing else: no shell, no package manager, no setuid program.
#
#   sh rootfs.sh TARGET VENV      TARGET is made; VENV is an environment of Python 3.10 or later
set -eu
target=$1 venv=$2
python=$(readlink -f "$venv/bin/python3")

# A file under its path, where the folder's own links are followed: /lib is /usr/lib on Debian.
put() {
    for file in "$@"; do
        folder=$(readlink -f "$(dirname "$file")")
        mkdir -p "$target$folder"
        cp -L "$file" "$target$folder/$(basename "$file")"
    done
}

# The libraries that a program or a library is linked with, the loader among them.
linked() { ldd "$@" 2>/dev/null | sed -n 's/.* => \(\/[^ ]*\) .*/\1/p; s/^[[:space:]]*\(\/[^ :]*\) (.*/\1/p' | sort -u; }

mkdir -p "$target/usr/bin" "$target/usr/lib" "$target/usr/lib64" "$target/etc" "$target/run/lock" "$target/proc" \
    "$target/sys" "$target/dev"
for name in bin lib lib64; do ln -sfn "usr/$name" "$target/$name"; done
mkdir -p -m 1777 "$target/tmp"
printf 'root:x:0:0::/tmp:/nonexistent\nnobody:x:65532:65532::/tmp:/nonexistent\n' >"$target/etc/passwd"
printf 'root:x:0:\nnobody:x:65532:\n' >"$target/etc/group"
# The NVIDIA container runtime looks here for where this system keeps its libraries.
if [ -f /etc/debian_version ]; then cp /etc/debian_version "$target/etc/"; fi

put "$python" "$(command -v timeout)"
ln -sfn "$(basename "$python")" "$target$(dirname "$python")/python3"
"$python" -c 'import sysconfig as s; print(*sorted({s.get_path("stdlib"), s.get_path("platstdlib")}), sep="\n")' |
    while read -r folder; do
        mkdir -p "$target$folder"
        tar -C "$folder" --exclude=__pycache__ --exclude=test --exclude=idlelib --exclude=tkinter --exclude=turtledemo \
            --exclude=ensurepip --exclude=site-packages --exclude=dist-packages --exclude='config-*' -cf - . |
            tar -C "$target$folder" -xf -
    done
mkdir -p "$target$venv"
tar -C "$venv" --exclude=__pycache__ --exclude=pip --exclude='pip-*' --exclude=setuptools --exclude='setuptools-*' \
    --exclude='bin/[Aa]ctivate*' --exclude='bin/pip*' -cf - . | tar -C "$target$venv" -xf -

# What the driver's own libraries, which are not here yet, are linked with.
libc=$(linked "$python" | grep '/libc\.so')
for name in libdl.so.2 libpthread.so.0 librt.so.1 libm.so.6 libgcc_s.so.1 libstdc++.so.6; do
    if [ -f "$(dirname "$libc")/$name" ]; then put "$(dirname "$libc")/$name"; fi
done
# What the wheels bring is there already: they find their own libraries from where they lie, here below the target.
put $(linked "$python" "$(command -v timeout)" $(find "$target" -type f -name '*.so*') |
    while read -r file; do case "$(readlink -f "$file")" in "$(readlink -f "$target")"/*) ;; *) echo "$file" ;; esac; done)

# Nothing can be written there later: each command would compile what it imports, a worker of the engine half a second.
# What does not compile (a wheel may carry a file for another Python) is imported by nobody.
"$python" -m compileall -q --invalidation-mode unchecked-hash -s "$target" -p / "$target" || true
find "$target" -xdev -perm /6000 -type f -exec chmod ug-s {} +
