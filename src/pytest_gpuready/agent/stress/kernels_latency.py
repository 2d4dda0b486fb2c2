"""CUDA C++ of the latency phase: a cycle of pointers through all of a piece of memory, and one thread that follows it.

The nodes of the cycle lie `NODE` bytes apart. Their order is that of `place`, a permutation that jumps about, so no
step can be foreseen. The same permutation stands here in Python: it says at which node a walk must end.
"""

from __future__ import annotations

from pytest_gpuready.agent.stress.kernels import HEADER

NODE = 128
"""Bytes from node to node: a cache line."""
FIRST, SECOND = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9

_CHAINS = r"""
// The node that comes as the i-th, of 2^bits nodes.
__device__ __forceinline__ u64 place(u64 i, u64 bits, u64 seed) {
  u64 mask = (1ull << bits) - 1, half = bits / 2;
  i = ((i + seed) * 0x9e3779b97f4a7c15ull) & mask; i ^= i >> half;
  i = (i * 0xbf58476d1ce4e5b9ull) & mask; i ^= i >> half;
  return i;
}
extern "C" __global__ void latency_link(u64 base, u64 bits, u64 seed, u64* at) {
  u64 nodes = 1ull << bits;
  for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < nodes; i += (u64)gridDim.x * blockDim.x) {
    u64 next = i + 1 == nodes ? 0 : i + 1, here = base + place(i, bits, seed) * 128;
    *(u64*)here = base + place(next, bits, seed) * 128;
    if (i == 0) *at = here;
  }
}
extern "C" __global__ void latency_walk(u64* at, u64 steps) {
  u64 p = *at;
  for (u64 i = 0; i < steps; ++i) asm volatile("ld.global.cv.u64 %0, [%0];" : "+l"(p) :: "memory");
  *at = p;
}
"""


def chains() -> str:
    """latency_link, latency_walk."""
    return HEADER + _CHAINS


def place(i: int, bits: int, seed: int) -> int:
    """Which of 2**bits nodes comes as the i-th."""
    mask, half = 2**bits - 1, bits // 2
    i = (i + seed) * FIRST & mask
    i ^= i >> half
    i = i * SECOND & mask
    return i ^ i >> half
