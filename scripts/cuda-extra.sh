#!/bin/sh
# Prints the extra that brings the CUDA packages for the driver that is loaded: cuda13 from driver 580 on, cuda12
# before it; nothing where no NVIDIA driver is loaded.
major=$(sed -n 's/^NVRM version: .* \([0-9][0-9]*\)\.[0-9][0-9.]* .*/\1/p' "${1:-/proc/driver/nvidia/version}" 2>/dev/null | head -n 1)
[ -n "$major" ] || exit 0
[ "$major" -ge 580 ] && echo '[cuda13]' || echo '[cuda12]'
