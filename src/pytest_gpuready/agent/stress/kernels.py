"""CUDA C++ of the products' data and checks: filling, digests, comparing, a reference, planted faults.

Matrices lie as cuBLASLt wants them for A transposed: A[m][k] at m*K + k, B[k][n] at n*K + k, D[m][n] at n*M + m.

Filling: elements are close to normal with variance 1 (four uniform numbers added), rounded to the format, so that
products neither overflow nor vanish in any of them; INT8 takes all 256 values.

`compare` reads each result once. Every chunk of 64 KiB has a digest, the sum of its 32-bit words times odd 32-bit
weights modulo 2^64: a change in one word, whatever bits, always changes it; changes in several cancel with probability
2^-64. Only where a digest differs is the chunk compared word for word with the first result, and the differing elements
are counted and kept. Then one word of each chunk, another one each time, is spoilt: a product that leaves much
unwritten seldom passes with what the product before left there (`gemm` spoils a sixteenth of it besides).

`inspect_a` and `inspect_b` compare A and B with what the filling writes, computed again: `made` is the function of seed
and index that both use.

`tiles` computes 64 x 64 elements in FP64 on the CUDA cores, no tensor core, and compares with an element-wise limit.
`signs_of_b`, `rows_of_a`, `signs_of_d` and `residual` are Freivalds' product: C·x against A·(B·x), x of random signs.
Everything is plain C++ that NVRTC compiles without any header.
"""

from __future__ import annotations

HEADER = r"""
typedef unsigned long long u64; typedef unsigned int u32; typedef unsigned short u16; typedef unsigned char u8;
enum { FP64, TF32, BF16, FP16, E4M3, E5M2, INT8, INT32, E2M1, FP32 };
template <int bytes> struct Size { typedef u64 type; };
template <> struct Size<4> { typedef u32 type; };
template <> struct Size<2> { typedef u16 type; };
struct Entry { u64 position, expected, found, pass; };
struct Report { u64 count, kept; double worst; u64 spare; Entry entry[32]; };

__device__ __forceinline__ u64 mix(u64 x) {
  x += 0x9e3779b97f4a7c15ull; x ^= x >> 30; x *= 0xbf58476d1ce4e5b9ull; x ^= x >> 27; x *= 0x94d049bb133111ebull;
  return x ^ (x >> 31);
}
__device__ void note(Report* out, u64 position, u64 expected, u64 found, u64 pass) {
  atomicAdd(&out->count, 1ull);
  u64 place = atomicAdd(&out->kept, 1ull);
  if (place < 32) { out->entry[place].position = position; out->entry[place].expected = expected;
                    out->entry[place].found = found; out->entry[place].pass = pass; }
}
"""

_VALUES = r"""
__device__ __forceinline__ float normal(u64 seed, u64 i) {
  u64 h = mix(seed * 0xd1342543de82ef95ull + i);
  int s = (int)(h & 65535) + (int)((h >> 16) & 65535) + (int)((h >> 32) & 65535) + (int)(h >> 48) - 131070;
  return s * (1.0f / 37837.0f);
}
__device__ double normal64(u64 seed, u64 i) {
  double s = -2.0;
  for (int q = 0; q < 4; ++q) s += (double)(mix(seed * 0xd1342543de82ef95ull + i * 4 + q) >> 11) * 0x1p-53;
  return s * 1.7320508075688772;
}
// To nearest, ties to even, into sign, exponent field and `mantissa` bits; what is tiny becomes subnormal.
__device__ __forceinline__ u32 encode(float x, int mantissa, int bias, int width) {
  u32 bits = __float_as_uint(x); float size = fabsf(x);
  int e = (int)((bits >> 23) & 255) - 127;
  if (e < 1 - bias) e = 1 - bias;
  u32 q = (u32)__float2int_rn(size / __uint_as_float((u32)(e - mantissa + 127) << 23));
  return (((u32)(e + bias) << mantissa) + q - (1u << mantissa)) | ((bits >> 31) << (width - 1));
}
__device__ __forceinline__ u32 bf16_of(float x) {
  u32 b = __float_as_uint(x); return (b + 0x7fffu + ((b >> 16) & 1)) >> 16;
}
__device__ __forceinline__ float half_value(u32 bits) {
  float f; u16 h = (u16)bits; asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(h)); return f;
}
__device__ __forceinline__ float e4m3_value(u32 b) {
  u32 e = (b >> 3) & 15, m = b & 7;
  float size = e ? (float)(8 + m) * __uint_as_float((e + 117) << 23) : (float)m * __uint_as_float(118u << 23);
  return b & 128 ? -size : size;
}
__device__ __forceinline__ float e2m1_value(u32 b) {
  u32 e = (b >> 1) & 3, m = b & 1;
  float size = e ? (float)(2 + m) * __uint_as_float((e + 125) << 23) : 0.5f * m;
  return b & 8 ? -size : size;
}
template <int kind> __device__ __forceinline__ double value(const void* p, u64 i) {
  if constexpr (kind == FP64) return ((const double*)p)[i];
  else if constexpr (kind == TF32 || kind == FP32) return ((const float*)p)[i];
  else if constexpr (kind == BF16) return __uint_as_float((u32)((const u16*)p)[i] << 16);
  else if constexpr (kind == FP16) return half_value(((const u16*)p)[i]);
  else if constexpr (kind == E4M3) return e4m3_value(((const u8*)p)[i]);
  else if constexpr (kind == E5M2) return half_value((u32)((const u8*)p)[i] << 8);
  else if constexpr (kind == INT8) return ((const signed char*)p)[i];
  else if constexpr (kind == INT32) return ((const int*)p)[i];
  else return e2m1_value(((const u8*)p)[i >> 1] >> ((i & 1) * 4));
}
using Word = Size<DB>::type;  // an element of D as bits
"""

_DATA = r"""
// The bits of element i.
template <int kind> __device__ __forceinline__ u64 made(u64 seed, u64 i) {
  if constexpr (kind == FP64) return (u64)__double_as_longlong(normal64(seed, i));
  else if constexpr (kind == TF32) return (__float_as_uint(normal(seed, i)) + 0x1000u) & 0xffffe000u;
  else if constexpr (kind == BF16) return (u16)bf16_of(normal(seed, i));
  else if constexpr (kind == FP16) return (u16)encode(normal(seed, i), 10, 15, 16);
  else if constexpr (kind == E4M3) return (u8)encode(normal(seed, i), 3, 7, 8);
  else if constexpr (kind == E5M2) return (u8)encode(normal(seed, i), 2, 15, 8);
  else if constexpr (kind == INT8) return (u8)(mix(seed * 0xd1342543de82ef95ull + i) >> 40);
  else return encode(normal(seed, i), 1, 1, 4) & 15;
}
template <int kind> __device__ __forceinline__ u64 stored(const void* p, u64 i) {
  if constexpr (kind == FP64) return ((const u64*)p)[i];
  else if constexpr (kind == TF32) return ((const u32*)p)[i];
  else if constexpr (kind == BF16 || kind == FP16) return ((const u16*)p)[i];
  else if constexpr (kind == E2M1) return ((const u8*)p)[i >> 1] >> ((i & 1) * 4) & 15;
  else return ((const u8*)p)[i];
}
template <int kind> __device__ __forceinline__ void fill(void* p, u64 count, u64 seed) {
  u64 step = (u64)gridDim.x * blockDim.x;
  for (u64 i = blockIdx.x * (u64)blockDim.x + threadIdx.x; i < count; i += step) {
    if constexpr (kind == FP64) ((u64*)p)[i] = made<kind>(seed, i);
    else if constexpr (kind == TF32) ((u32*)p)[i] = (u32)made<kind>(seed, i);
    else if constexpr (kind == BF16 || kind == FP16) ((u16*)p)[i] = (u16)made<kind>(seed, i);
    else if constexpr (kind == E2M1) {
      if (!(i & 1)) ((u8*)p)[i >> 1] = (u8)(made<kind>(seed, i) | made<kind>(seed, i + 1) << 4);
    } else ((u8*)p)[i] = (u8)made<kind>(seed, i);
  }
}
// Positions in the report begin at `first`.
template <int kind>
__device__ __forceinline__ void inspect(const void* p, u64 count, u64 seed, u64 first, Report* out) {
  u64 step = (u64)gridDim.x * blockDim.x;
  for (u64 i = blockIdx.x * (u64)blockDim.x + threadIdx.x; i < count; i += step) {
    u64 expected = made<kind>(seed, i), found = stored<kind>(p, i);
    if (expected != found) note(out, first + i, expected, found, 0);
  }
}
extern "C" __global__ void fill_a(void* p, u64 count, u64 seed) { fill<KA>(p, count, seed); }
extern "C" __global__ void fill_b(void* p, u64 count, u64 seed) { fill<KB>(p, count, seed); }
extern "C" __global__ void inspect_a(const void* p, u64 count, u64 seed, u64 first, Report* out) {
  inspect<KA>(p, count, seed, first, out);
}
extern "C" __global__ void inspect_b(const void* p, u64 count, u64 seed, u64 first, Report* out) {
  inspect<KB>(p, count, seed, first, out);
}

#define CHUNK 4096  // uint4, 64 KiB
__device__ __forceinline__ u64 digest_of(const uint4* chunk) {
  u64 sum = 0;
#pragma unroll 8
  for (u32 i = threadIdx.x; i < CHUNK; i += 256) {
    uint4 v = chunk[i]; u32 w = i * 0x9e3779b2u + 1u;  // odd, and different for each vector
    sum += (u64)v.x * w + (u64)v.y * (w ^ 0x3c6ef372u) + (u64)v.z * (w ^ 0x78dde6e4u) + (u64)v.w * (w ^ 0xf1bbcdc8u);
  }
  for (int d = 16; d; d >>= 1) sum += __shfl_xor_sync(0xffffffffu, sum, d);
  __shared__ u64 part[8];
  if (!(threadIdx.x & 31)) part[threadIdx.x >> 5] = sum;
  __syncthreads();
  sum = 0;
  for (int q = 0; q < 8; ++q) sum += part[q];
  return sum;
}
extern "C" __global__ void __launch_bounds__(256) digest(const uint4* d, u64* golden) {
  u64 sum = digest_of(d + (u64)blockIdx.x * CHUNK);
  if (!threadIdx.x) golden[blockIdx.x] = sum;
}
extern "C" __global__ void __launch_bounds__(256)
compare(uint4* d, const uint4* first, const u64* golden, u64 pass, Report* out) {
  u64 chunk = gridDim.x - 1 - blockIdx.x;  // what was written last may still lie in the L2 cache
  if (digest_of(d + chunk * CHUNK) != golden[chunk]) {
    const u64 each = CHUNK * 16 / DB;
    for (u64 i = chunk * each + threadIdx.x; i < (chunk + 1) * each; i += 256) {
      u64 found = ((const Word*)d)[i], expected = ((const Word*)first)[i];
      if (found != expected) note(out, i, expected, found, pass);
    }
    __syncthreads();
  }
  if (!threadIdx.x) {
    u32* spoilt = (u32*)(d + chunk * CHUNK + mix(pass * 0x10001 + chunk) % CHUNK);
    *spoilt = ~*spoilt;
  }
}

"""

_REFERENCE = r"""
#define VECTORS 4
__device__ __forceinline__ u32 signs(u64 seed, u64 n) { return (u32)(mix(seed ^ (n * 0x2545f4914f6cdd1dull)) >> 33); }
// y[v][k] += sum over a slice of n of B[k][n] x_v[n]
extern "C" __global__ void __launch_bounds__(256)
signs_of_b(const void* b, u64 n, u64 k, u64 slice, u64 seed, double* y) {
  u64 i = blockIdx.x * 256ull + threadIdx.x, from = blockIdx.y * slice, to = from + slice < n ? from + slice : n;
  double sum[VECTORS] = {0, 0, 0, 0};
  for (u64 j = from; j < to; ++j) {
    double one = value<KB>(b, j * k + i); u32 s = signs(seed, j);
    for (int v = 0; v < VECTORS; ++v) sum[v] += (s >> v) & 1 ? one : -one;
  }
  for (int v = 0; v < VECTORS; ++v) atomicAdd(&y[v * k + i], sum[v]);
}
// z[v][m] = sum over k of A[m][k] y[v][k]; one block a row
extern "C" __global__ void __launch_bounds__(256)
rows_of_a(const void* a, u64 m, u64 k, const double* y, double* z) {
  double sum[VECTORS] = {0, 0, 0, 0};
  for (u64 i = threadIdx.x; i < k; i += 256) {
    double one = value<KA>(a, blockIdx.x * k + i);
    for (int v = 0; v < VECTORS; ++v) sum[v] += one * y[v * k + i];
  }
  __shared__ double part[8];
  for (int v = 0; v < VECTORS; ++v) {
    double s = sum[v];
    for (int d = 16; d; d >>= 1) s += __shfl_xor_sync(0xffffffffu, s, d);
    __syncthreads();
    if (!(threadIdx.x & 31)) part[threadIdx.x >> 5] = s;
    __syncthreads();
    if (!threadIdx.x) { s = 0; for (int q = 0; q < 8; ++q) s += part[q]; z[v * m + blockIdx.x] = s; }
  }
}
// w[v][m] += sum over a slice of n of D[m][n] x_v[n]; w[VECTORS][m] collects the squares
extern "C" __global__ void __launch_bounds__(256)
signs_of_d(const void* d, u64 m, u64 n, u64 slice, u64 seed, double* w) {
  u64 i = blockIdx.x * 256ull + threadIdx.x, from = blockIdx.y * slice, to = from + slice < n ? from + slice : n;
  double sum[VECTORS] = {0, 0, 0, 0}, squares = 0;
  for (u64 j = from; j < to; ++j) {
    double one = value<KD>(d, j * m + i); u32 s = signs(seed, j);
    squares += one * one;
    for (int v = 0; v < VECTORS; ++v) sum[v] += (s >> v) & 1 ? one : -one;
  }
  for (int v = 0; v < VECTORS; ++v) atomicAdd(&w[v * m + i], sum[v]);
  atomicAdd(&w[VECTORS * m + i], squares);
}
__device__ void judge(Report* out, double off, double limit, u64 position, double expected, double found) {
  double part = off == 0 ? 0 : off / limit;
  if (!(limit < 1e300)) part = 1e300;  // what is infinite, or no number, makes its own limit so
  if (!(part <= 1)) {
    note(out, position, __double_as_longlong(expected), __double_as_longlong(found), 0);
    if (!(part < 1e300)) part = 1e300;
  }
  if (part > out->worst) atomicMax((u64*)&out->worst, (u64)__double_as_longlong(part));
}
extern "C" __global__ void residual(const double* z, const double* w, u64 m, u64 n, double absolute, double relative,
                                    double factor, Report* out) {
  u64 i = blockIdx.x * (u64)blockDim.x + threadIdx.x;
  if (i >= m) return;
  double limit = factor * sqrt((double)n * absolute * absolute + relative * relative * w[VECTORS * m + i]);
  for (int v = 0; v < VECTORS; ++v) judge(out, fabs(w[v * m + i] - z[v * m + i]), limit, i, z[v * m + i], w[v * m + i]);
}

// One block a tile of 64 x 64; 4 x 4 elements a thread.
extern "C" __global__ void __launch_bounds__(256)
tiles(const void* a, const void* b, const void* d, u64 m, u64 n, u64 k, u64 begin, u64 step,
      u64 total, double absolute, double relative, Report* out) {
  __shared__ __align__(16) double left[16][66], right[16][66];
  u64 tile = (begin + blockIdx.x) % total * step % total, rows = m / 64, m0 = tile % rows * 64, n0 = tile / rows * 64;
  int row = threadIdx.x >> 2, part = (threadIdx.x & 3) * 4, x = (threadIdx.x & 15) * 2, y = (threadIdx.x >> 4) * 2;
  double sum[4][4] = {};
  for (u64 k0 = 0; k0 < k; k0 += 16) {
    double p[4], q[4];
    for (int j = 0; j < 4; ++j) p[j] = value<KA>(a, (m0 + row) * k + k0 + part + j);
    for (int j = 0; j < 4; ++j) q[j] = value<KB>(b, (n0 + row) * k + k0 + part + j);
    __syncthreads();
    for (int j = 0; j < 4; ++j) { left[part + j][row] = p[j]; right[part + j][row] = q[j]; }
    __syncthreads();
#pragma unroll
    for (int i = 0; i < 16; ++i) {
      double2 l0 = *(double2*)&left[i][y], l1 = *(double2*)&left[i][y + 32];
      double2 r0 = *(double2*)&right[i][x], r1 = *(double2*)&right[i][x + 32];
      double l[4] = {l0.x, l0.y, l1.x, l1.y}, r[4] = {r0.x, r0.y, r1.x, r1.y};
#pragma unroll
      for (int g = 0; g < 4; ++g)
#pragma unroll
        for (int h = 0; h < 4; ++h) sum[g][h] = fma(l[g], r[h], sum[g][h]);
    }
  }
  for (int g = 0; g < 4; ++g)
    for (int h = 0; h < 4; ++h) {
      u64 r = m0 + y + (g & 1) + (g >> 1) * 32, c = n0 + x + (h & 1) + (h >> 1) * 32;
      double found = value<KD>(d, c * m + r);
      judge(out, fabs(found - sum[g][h]), absolute + relative * fabs(sum[g][h]), c * m + r, sum[g][h], found);
    }
}
"""

FLIP = r"""
// For the control of every phase, and as a fault for tests.
extern "C" __global__ void flip_bit(u8* p, u64 byte, u32 bit) { p[byte] ^= (u8)(1u << bit); }
"""

_FAULTS = r"""
// Faults for tests.
// A tile of 128 x 128 takes the values of the one beside it: of the right size, and wrong.
extern "C" __global__ void stain(void* d, u64 m, u64 row0, u64 col0, u64 from_col) {
  Word* to = (Word*)d + (col0 + blockIdx.x) * m + row0 + threadIdx.x;
  *to = ((Word*)d)[(from_col + blockIdx.x) * m + row0 + threadIdx.x];
}
// What a tile of 128 x 128 holds that no product wrote, where elements begin to end were spoilt before.
extern "C" __global__ void unwrite(void* d, u64 m, u64 row0, u64 col0, u64 begin, u64 end) {
  u64 i = (col0 + blockIdx.x) * m + row0 + threadIdx.x;
  if (i >= begin && i < end) ((Word*)d)[i] = (Word)0xa5a5a5a5a5a5a5a5ull;
}
"""


def _of(a: int, b: int, d: int, d_bytes: int) -> str:
    return f"{HEADER}\nenum {{ KA = {a}, KB = {b}, KD = {d}, DB = {d_bytes} }};\n{_VALUES}"


def products(a: int, b: int, d: int, d_bytes: int) -> str:
    """Filling, digests, comparing and planted faults for elements of these kinds (`formats.FP64` and so on)."""
    return _of(a, b, d, d_bytes) + _DATA + FLIP + _FAULTS


def reference(a: int, b: int, d: int, d_bytes: int) -> str:
    """The independent reference for the same elements."""
    return _of(a, b, d, d_bytes) + _REFERENCE
