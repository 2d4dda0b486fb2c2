"""CUDA C++ that fills the data of a check and compares every element of a result (`pattern` says with what).

Plain C++ that NVRTC compiles without any header. The grid's y counts the blocks of a buffer, one for each rank that
data came from; one block where it is of one rank, or a sum.
"""

from __future__ import annotations

_SOURCE = r"""
typedef unsigned long long u64; typedef unsigned int u32; typedef unsigned short u16;
struct Report { u64 wrong, first; };
__device__ __forceinline__ u64 mix(u64 x) {
  x += 0x9e3779b97f4a7c15ull;
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ x >> 27) * 0x94d049bb133111ebull;
  return x ^ x >> 31;
}
__device__ __forceinline__ float element(u64 seed, u64 index, u64 high_a, u64 high_b, u64 many, u64 weight) {
  u64 bits = mix(seed * 0xd1342543de82ef95ull + index);
  u64 a = 1 + (bits & (high_a - 1)), b = 1 + ((bits >> 32) & (high_b - 1));
  return (float)(u32)(many * a + weight * b);
}
#if BF16
typedef u16 Element;
__device__ __forceinline__ Element stored(float x) { return (u16)(__float_as_uint(x) >> 16); }
#else
typedef u32 Element;
__device__ __forceinline__ Element stored(float x) { return __float_as_uint(x); }
#endif
extern "C" __global__ void fill(
    Element* p, u64 count, u64 seed, u64 base, u64 high_a, u64 high_b, u64 weight) {
  u64 step = (u64)gridDim.x * blockDim.x;
  for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += step)
    p[i] = stored(element(seed, base + i, high_a, high_b, 1, weight));
}
// Block y came from rank first + y, whose data began at base + y * stride; a sum has many > 0 and its weight.
extern "C" __global__ void check(
    const Element* p, u64 count, u64 seed, u64 base, u64 stride, u64 first, u64 cycle,
    u64 high_a, u64 high_b, u64 many, u64 total, Report* out) {
  u64 step = (u64)gridDim.x * blockDim.x, block = blockIdx.y, wrong = 0, at = ~0ull;
  u64 weight = many ? total : (first + block) % cycle, times = many ? many : 1;
  for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += step) {
    u64 place = block * count + i;
    Element expected = stored(element(seed, base + block * stride + i, high_a, high_b, times, weight));
    if (p[place] != expected) { ++wrong; if (place < at) at = place; }
  }
  if (wrong) { atomicAdd(&out->wrong, wrong); atomicMin(&out->first, at); }
}
"""


def source(datatype: str) -> str:
    """For elements of this datatype."""
    return f"#define BF16 {int(datatype == 'bfloat16')}\n{_SOURCE}"
