"""CUDA C++ of the memory tests: patterns over all memory, bandwidth of HBM, patterns inside the L1 and L2 caches.

All accesses are 16 bytes wide and in order. Memory under test is cut into pieces of 16 KiB, four vectors a thread of
256. A pattern is a function of the word's place, so nothing has to be kept to check it; `turn` checks and writes the
complement in one go. An error is noted with its place in bytes, what was expected and what was found.
"""

from __future__ import annotations

from pytest_gpuready.agent.stress.kernels import FLIP, HEADER

PIECE = 16384
"""Bytes that a block takes at a time."""

_PATTERNS = r"""
enum { WALKING, SAME, ADDRESS, RANDOM, MODULO };
// Four words from word i (a multiple of 4) on; r is i % 20.
template <int kind> __device__ __forceinline__ uint4 pattern(u64 i, u64 a, u32 r) {
  uint4 v;
  if constexpr (kind == WALKING) {  // one bit walks through the words and, by a, from pass to pass
    u32 s = (u32)(i + a);
    v.x = 1u << (s & 31); v.y = 1u << ((s + 1) & 31); v.z = 1u << ((s + 2) & 31); v.w = 1u << ((s + 3) & 31);
  } else if constexpr (kind == SAME) {
    v.x = v.y = v.z = v.w = (u32)a;
  } else if constexpr (kind == ADDRESS) {  // every 8 bytes hold their own address
    u64 p = a + i * 4, q = p + 8;
    v.x = (u32)p; v.y = (u32)(p >> 32); v.z = (u32)q; v.w = (u32)(q >> 32);
  } else if constexpr (kind == RANDOM) {
    u64 h = (i ^ a) * 0x9e3779b97f4a7c15ull; h = (h ^ (h >> 32)) * 0xd1342543de82ef95ull;
    u64 g = (h ^ (h >> 29)) * 0xbf58476d1ce4e5b9ull;
    v.x = (u32)(h >> 16); v.y = (u32)(h >> 32) ^ (u32)h; v.z = (u32)(g >> 32); v.w = (u32)g ^ (u32)(g >> 40);
  } else {  // every twentieth word differs from all the others, from word a on
    u32 w = (u32)a; u32 t = r;
    v.x = t == w ? 0x5a5aa5a5u : 0xa5a55a5au; t = t == 19 ? 0 : t + 1;
    v.y = t == w ? 0x5a5aa5a5u : 0xa5a55a5au; t = t == 19 ? 0 : t + 1;
    v.z = t == w ? 0x5a5aa5a5u : 0xa5a55a5au; t = t == 19 ? 0 : t + 1;
    v.w = t == w ? 0x5a5aa5a5u : 0xa5a55a5au;
  }
  return v;
}
__device__ __noinline__ void wrong(u64 i, uint4 e, uint4 f, Report* out) {
  u32 want[4] = {e.x, e.y, e.z, e.w}, have[4] = {f.x, f.y, f.z, f.w};
  for (int j = 0; j < 4; ++j) if (want[j] != have[j]) note(out, (i + j) * 4, want[j], have[j], 0);
}
enum { WRITE, CHECK, TURN };
template <int kind, int mode>
__device__ __forceinline__ void run(uint4* p, u64 pieces, u64 a, u32 inverse, u32 down, Report* out) {
  for (u64 n = blockIdx.x; n < pieces; n += gridDim.x) {
    u64 base = (down ? pieces - 1 - n : n) * 1024;
    u32 r0 = kind == MODULO ? (u32)((base * 4) % 20) : 0;
    uint4 f[4];
    if constexpr (mode != WRITE) {
#pragma unroll
      for (int u = 0; u < 4; ++u) f[u] = __ldcs(p + base + u * 256 + threadIdx.x);
    }
#pragma unroll
    for (int u = 0; u < 4; ++u) {
      u32 o = u * 256 + threadIdx.x; u64 i = (base + o) * 4;
      uint4 e = pattern<kind>(i, a, kind == MODULO ? (r0 + o * 4) % 20 : 0);
      e.x ^= inverse; e.y ^= inverse; e.z ^= inverse; e.w ^= inverse;
      if constexpr (mode != WRITE)
        if ((e.x ^ f[u].x) | (e.y ^ f[u].y) | (e.z ^ f[u].z) | (e.w ^ f[u].w)) wrong(i, e, f[u], out);
      if constexpr (mode == TURN) { e.x = ~e.x; e.y = ~e.y; e.z = ~e.z; e.w = ~e.w; }
      if constexpr (mode != CHECK) __stcs(p + base + o, e);
    }
  }
}
#define ONE(name, kind, mode)                                                                                    \
  extern "C" __global__ void __launch_bounds__(256) name(uint4* p, u64 pieces, u64 a, u32 inverse, u32 down,     \
                                                         Report* out) {                                          \
    run<kind, mode>(p, pieces, a, inverse, down, out);                                                           \
  }
#define ALL(name, kind) ONE(name##_write, kind, WRITE) ONE(name##_check, kind, CHECK) ONE(name##_turn, kind, TURN)
ALL(walking, WALKING) ALL(same, SAME) ALL(address, ADDRESS) ALL(random, RANDOM) ALL(modulo, MODULO)
"""

_BANDWIDTH = r"""
template <bool streaming> __device__ __forceinline__ uint4 get(const uint4* p) {
  if constexpr (streaming) return __ldcs(p);
  else return *p;
}
template <bool streaming> __device__ __forceinline__ void put(uint4* p, uint4 v) {
  if constexpr (streaming) __stcs(p, v);
  else *p = v;
}
enum { READ, MAKE, COPY, TRIAD };
// `deep` vectors of each array are under way for a thread at a time.
template <int kind, int deep, bool streaming>
__device__ __forceinline__ void move(uint4* p, uint4* q, uint4* s, u64 pieces) {
  u32 sum = 0;
  for (u64 n = blockIdx.x; n < pieces * 4 / deep; n += gridDim.x) {
    u64 at = n * 256 * deep + threadIdx.x;
    uint4 v[deep], w[deep];
    if constexpr (kind != MAKE) {
#pragma unroll
      for (int u = 0; u < deep; ++u) {
        v[u] = get<streaming>(p + at + u * 256);
        if constexpr (kind == TRIAD) w[u] = get<streaming>(q + at + u * 256);
      }
    }
#pragma unroll
    for (int u = 0; u < deep; ++u) {
      if constexpr (kind == READ) sum ^= v[u].x ^ v[u].y ^ v[u].z ^ v[u].w;
      if constexpr (kind == MAKE) put<streaming>(p + at + u * 256, make_uint4(0x3ff00000u, n, 0x40000000u, at));
      if constexpr (kind == COPY) put<streaming>(q + at + u * 256, v[u]);
      if constexpr (kind == TRIAD) {
        double2 x = *(double2*)&v[u], y = *(double2*)&w[u];
        x.x += 0.5 * y.x; x.y += 0.5 * y.y;
        put<streaming>(s + at + u * 256, *(uint4*)&x);
      }
    }
  }
  if (kind == READ && sum == 0x12345679u) q[0].x = sum;
}
#define ONE(name, kind, deep, streaming)                                                                       \
  extern "C" __global__ void __launch_bounds__(256) name(uint4* p, uint4* q, uint4* s, u64 pieces) {           \
    move<kind, deep, streaming>(p, q, s, pieces);                                                              \
  }
#define ALL(name, kind)                                                                                        \
  ONE(name##_4_streaming, kind, 4, true) ONE(name##_4_plain, kind, 4, false)                                   \
  ONE(name##_8_streaming, kind, 8, true) ONE(name##_8_plain, kind, 8, false) ONE(name##_2_plain, kind, 2, false)
ALL(hbm_read, READ) ALL(hbm_write, MAKE) ALL(hbm_copy, COPY) ALL(hbm_triad, TRIAD)
"""

VARIANTS = {"4_streaming": 4, "4_plain": 4, "8_streaming": 8, "8_plain": 8, "2_plain": 2}
"""Ways to write an HBM kernel -> vectors of 16 bytes that a thread has under way."""

_CACHES = r"""
// Four words: from their address times `factor`, and a word.
__device__ __forceinline__ uint4 cached(const uint4* p, u32 i, uint4 by) {
  u32 h = (u32)(u64)(p + i) * by.x ^ by.y;
  return make_uint4(h, h ^ by.z, h ^ by.w, h ^ by.z ^ by.w);
}
__device__ __noinline__ void off(u64 i, uint4 e, uint4 f, Report* out) {
  u32 want[4] = {e.x, e.y, e.z, e.w}, have[4] = {f.x, f.y, f.z, f.w};
  for (int j = 0; j < 4; ++j) if (want[j] != have[j]) note(out, i * 16 + j * 4, want[j], have[j], 0);
}
extern "C" __global__ void cache_write(uint4* p, u32 vectors, u32 factor, u32 word, u32 second, u32 third) {
  uint4 by = make_uint4(factor, word, second, third);
  for (u32 i = blockIdx.x * blockDim.x + threadIdx.x; i < vectors; i += gridDim.x * blockDim.x) p[i] = cached(p, i, by);
}
#define LOOK(op)                                                                                          \
  uint4 f[4], e;                                                                                          \
  for (int u = 0; u < 4; ++u)                                                                             \
    asm volatile(op " {%0,%1,%2,%3}, [%4];" : "=r"(f[u].x), "=r"(f[u].y), "=r"(f[u].z), "=r"(f[u].w)      \
                 : "l"(p + at[u]));                                                                       \
  for (int u = 0; u < 4; ++u) {                                                                           \
    e = cached(p, at[u], by);                                                                             \
    if ((e.x ^ f[u].x) | (e.y ^ f[u].y) | (e.z ^ f[u].z) | (e.w ^ f[u].w)) off(at[u], e, f[u], out);      \
  }
// Every block reads the whole buffer, past the L1 cache, each from another place on.
extern "C" __global__ void __launch_bounds__(512)
l2_check(const uint4* p, u32 vectors, u32 factor, u32 word, u32 second, u32 third, u32 rounds, Report* out) {
  u32 piece = 2048, pieces = vectors / piece;
  uint4 by = make_uint4(factor, word, second, third);
  for (u32 r = 0; r < rounds; ++r) {
    u32 base = (u32)(((u64)blockIdx.x * 7 + r) % pieces) * piece + threadIdx.x, at[4];
    for (int u = 0; u < 4; ++u) at[u] = base + u * 512;
    LOOK("ld.global.cg.v4.u32")
  }
}
// One block a multiprocessor reads its own slice again and again; only the first time it comes from outside.
extern "C" __global__ void __launch_bounds__(1024)
l1_check(const uint4* p, u32 vectors, u32 factor, u32 word, u32 second, u32 third, u32 rounds, Report* out) {
  u32 slice = 4096, first = blockIdx.x * slice;
  uint4 by = make_uint4(factor, word, second, third);
  for (u32 r = 0; r < rounds; ++r) {
    u32 at[4];
    for (int u = 0; u < 4; ++u) at[u] = first + ((u * 1024 + threadIdx.x + r * 33) & (slice - 1));
    LOOK("ld.global.ca.v4.u32")
  }
}
"""


def patterns() -> str:
    """The patterns: KIND_write, KIND_check and KIND_turn for walking, same, address, random, modulo; flip_bit."""
    return HEADER + _PATTERNS + FLIP


def bandwidth() -> str:
    """hbm_KERNEL_VARIANT for read, write, copy and triad; one of `VARIANTS`."""
    return HEADER + _BANDWIDTH


def caches() -> str:
    """cache_write, l1_check, l2_check, flip_bit; see `bandwidth.patterns` for their four words."""
    return HEADER + _CACHES + FLIP
