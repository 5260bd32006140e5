// Vectors of floats, products of small matrices and the exponential, shared by all kernels of this folder.
//
// A matrix is a pointer and the distance of its rows, in floats. A number of columns is a multiple of LANES.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>

namespace longhaul {

#if defined(__AVX512F__)
constexpr int LANES = 16;
constexpr int WIDE = 4;  // vectors of a block of columns: with 4 rows, what the registers hold
#elif defined(__AVX2__)
constexpr int LANES = 8;
constexpr int WIDE = 2;
#else
constexpr int LANES = 4;
constexpr int WIDE = 4;
#endif

constexpr float NONE = -std::numeric_limits<float>::infinity();  // the score of a hidden key

typedef float Vec __attribute__((vector_size(LANES * 4)));
typedef float Loose __attribute__((vector_size(LANES * 4), aligned(4), may_alias));
typedef int32_t Ints __attribute__((vector_size(LANES * 4)));

inline Vec load(const float* p) { return *reinterpret_cast<const Loose*>(p); }
inline void store(float* p, Vec x) { *reinterpret_cast<Loose*>(p) = x; }
inline Vec all(float x) { return x - Vec{}; }
inline Vec larger(Vec a, Vec b) { return a > b ? a : b; }

// One number of all lanes, in pairs: a chain of LANES steps would wait for each of them.
template <typename Combine>
inline float combined(Vec x, Combine combine) {
  float lanes[LANES];
  store(lanes, x);
#pragma GCC unroll 4
  for (int half = LANES / 2; half > 0; half /= 2)
#pragma GCC unroll 8
    for (int i = 0; i < half; ++i) lanes[i] = combine(lanes[i], lanes[i + half]);
  return lanes[0];
}

inline float sum_in_pairs(Vec x) {
  return combined(x, [](float a, float b) { return a + b; });
}

// In the order in which a product adds, so that the difference of two equal sums is small.
inline float sum(Vec x) {
  float total = 0.0f;
  for (int i = 0; i < LANES; ++i) total += x[i];
  return total;
}

inline float largest(Vec x) {
  return combined(x, [](float a, float b) { return a > b ? a : b; });
}

// e^x for x <= 88, to 2 units in the last place; 0 below -87, minus infinity included.
inline Vec exponential(Vec x) {
  const Vec low = all(-87.0f);
  const Ints tiny = x < low;
  x = larger(x, low);
  const Vec magic = all(12582912.0f);  // 1.5 * 2^23: adding it rounds to a whole number
  const Vec rounded = x * 1.44269504088896341f + magic;
  const Vec n = rounded - magic;
  const Vec r = (x - n * 0.693145751953125f) - n * 1.42860682030941723212e-6f;
  Vec y = all(1.9875691500e-4f);
  y = y * r + 1.3981999507e-3f;
  y = y * r + 8.3334519073e-3f;
  y = y * r + 4.1665795894e-2f;
  y = y * r + 1.6666665459e-1f;
  y = y * r + 5.0000001201e-1f;
  y = y * r * r + r + 1.0f;
  const Ints power = (reinterpret_cast<Ints>(rounded) - 0x4B400000 + 127) << 23;
  y = y * reinterpret_cast<Vec>(power);
  return tiny ? Vec{} : y;
}

// A block of ROWS x (COLS LANES) of C (+)= A B, with A[i, k] = a[i * ai + k * ak].
template <int ROWS, int COLS>
inline void block(int64_t inner, const float* a, int64_t ai, int64_t ak, const float* b, int64_t ldb, float* c,
                  int64_t ldc, bool add) {
  Vec sums[ROWS][COLS];
#pragma GCC unroll 8
  for (int i = 0; i < ROWS; ++i)
#pragma GCC unroll 8
    for (int j = 0; j < COLS; ++j) sums[i][j] = add ? load(c + i * ldc + j * LANES) : Vec{};
  for (int64_t k = 0; k < inner; ++k) {
    Vec row[COLS];
#pragma GCC unroll 8
    for (int j = 0; j < COLS; ++j) row[j] = load(b + k * ldb + j * LANES);
#pragma GCC unroll 8
    for (int i = 0; i < ROWS; ++i) {
      const Vec x = all(a[i * ai + k * ak]);
#pragma GCC unroll 8
      for (int j = 0; j < COLS; ++j) sums[i][j] += x * row[j];
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < ROWS; ++i)
#pragma GCC unroll 8
    for (int j = 0; j < COLS; ++j) store(c + i * ldc + j * LANES, sums[i][j]);
}

template <int COLS>
inline void column_block(int64_t rows, int64_t inner, const float* a, int64_t ai, int64_t ak, const float* b,
                         int64_t ldb, float* c, int64_t ldc, bool add) {
  constexpr int HIGH = LANES == 16 && COLS <= 2 ? 8 : 4;  // narrow blocks are as high as the registers permit
  int64_t i = 0;
  for (; i + HIGH <= rows; i += HIGH) block<HIGH, COLS>(inner, a + i * ai, ai, ak, b, ldb, c + i * ldc, ldc, add);
  for (; i < rows; ++i) block<1, COLS>(inner, a + i * ai, ai, ak, b, ldb, c + i * ldc, ldc, add);
}

// C (rows x columns) = A (rows x inner) B (inner x columns), or added to C. A[i, k] = a[i * ai + k * ak].
inline void product(int64_t rows, int64_t inner, int64_t columns, const float* a, int64_t ai, int64_t ak,
                    const float* b, int64_t ldb, float* c, int64_t ldc, bool add) {
  int64_t j = 0;
  for (; j + WIDE * LANES <= columns; j += WIDE * LANES)
    column_block<WIDE>(rows, inner, a, ai, ak, b + j, ldb, c + j, ldc, add);
  for (; j + 2 * LANES <= columns; j += 2 * LANES)
    column_block<2>(rows, inner, a, ai, ak, b + j, ldb, c + j, ldc, add);
  for (; j < columns; j += LANES) column_block<1>(rows, inner, a, ai, ak, b + j, ldb, c + j, ldc, add);
}

// A square of LANES x LANES, transposed in the registers: halves of pairs of rows are exchanged, then quarters, ..
inline void transpose_square(const float* in, int64_t ldi, float* out, int64_t ldo) {
  Vec rows[LANES];
#pragma GCC unroll 16
  for (int i = 0; i < LANES; ++i) rows[i] = load(in + i * ldi);
#pragma GCC unroll 4
  for (int half = LANES / 2; half > 0; half /= 2) {
    Ints upper, lower;  // lanes of the first row, then of the second
    for (int lane = 0; lane < LANES; ++lane) {
      upper[lane] = lane & half ? LANES + lane - half : lane;
      lower[lane] = lane & half ? LANES + lane : lane + half;
    }
#pragma GCC unroll 16
    for (int i = 0; i < LANES; ++i)
      if (!(i & half)) {
        const Vec first = rows[i], second = rows[i + half];
        rows[i] = __builtin_shuffle(first, second, upper);
        rows[i + half] = __builtin_shuffle(first, second, lower);
      }
  }
#pragma GCC unroll 16
  for (int i = 0; i < LANES; ++i) store(out + i * ldo, rows[i]);
}

// out (columns x rows, rows padded to `ldo` with zeros) = in (rows x columns) transposed.
inline void transpose(int64_t rows, int64_t columns, const float* in, int64_t ldi, float* out, int64_t ldo) {
  // in squares: whole rows of `in` may fall on the same lines of the cache
  for (int64_t i = 0; i < rows; i += LANES)
    for (int64_t j = 0; j < columns; j += LANES) {
      if (i + LANES <= rows && j + LANES <= columns) {
        transpose_square(in + i * ldi + j, ldi, out + j * ldo + i, ldo);
        continue;
      }
      for (int64_t c = j; c < std::min(j + LANES, columns); ++c)
        for (int64_t r = i; r < std::min(i + LANES, rows); ++r) out[c * ldo + r] = in[r * ldi + c];
    }
  for (int64_t j = 0; j < columns; ++j)
    for (int64_t i = rows; i < ldo; ++i) out[j * ldo + i] = 0.0f;
}

}  // namespace longhaul
