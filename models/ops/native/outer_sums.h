// Running sums of outer products, read at every token, shared by the running softmax and the packed prefix:
//
//   out_t = q_t S_t,   S_t = f_t S_{t-1} + a_t' b_t   (I x J),
//
// or the same from the last token to the first. f_t <= 1 shrinks rows or columns of S.
//
// Tokens come in chunks. A chunk's own sum begins at zero and stays in registers; what came before is read by one
// product a chunk, and the chunk's sum is added to it with the rounding error kept (Kahan), so that errors do not grow
// with the length. Two multiplications per number of S and token, and one for what came before: no chunk of C x C
// scores is cheaper, and none bears factors that underflow inside a chunk.
#pragma once

#include <ATen/Parallel.h>

#include <vector>

#include "simd.h"
#include "tensors.h"
#if defined(__AVX2__) || defined(__AVX512F__)
#include <immintrin.h>
#endif

namespace longhaul {

constexpr int64_t CHUNK = 64;  // what a chunk reads and writes stays in the first cache at widths of 32
constexpr int ROWS = LANES == 16 ? 8 : 4;  // with two vectors of columns: half of the registers

inline bool any(Ints x) {
#if defined(__AVX512F__)
  const __m512i bits = reinterpret_cast<__m512i>(x);
  return _mm512_test_epi32_mask(bits, bits) != 0;
#else
  int32_t set_bits = 0;
  for (int i = 0; i < LANES; ++i) set_bits |= x[i];
  return set_bits != 0;
#endif
}

// A store to memory that lies past the caches: it does not read what it overwrites. `p` is a multiple of a vector.
inline void stream(float* p, Vec x) {
#if defined(__AVX512F__)
  _mm512_stream_ps(p, reinterpret_cast<__m512>(x));
#elif defined(__AVX2__)
  _mm256_stream_ps(p, reinterpret_cast<__m256>(x));
#else
  store(p, x);
#endif
}

// Before another thread may read what was streamed.
inline void finish_streams() {
#if defined(__AVX2__) || defined(__AVX512F__)
  _mm_sfence();
#endif
}

// total + error is a sum; x is added to it.
inline void add_exactly(Vec x, Vec& total, Vec& error) {
  const Vec y = x + error, next = total + y;
  error = y - (next - total);
  total = next;
}

// C (+)= A B with A[i, k] = a[i * ai + k * ak]; rows of B and C lie one after another. Blocks as high as those of S.
template <int COLS>
inline void high_columns(int64_t rows, int64_t inner, int64_t columns, const float* a, int64_t ai, int64_t ak,
                         const float* b, float* c, bool add) {
  int64_t i = 0;
  for (; i + ROWS <= rows; i += ROWS)
    block<ROWS, COLS>(inner, a + i * ai, ai, ak, b, columns, c + i * columns, columns, add);
  for (; i < rows; ++i) block<1, COLS>(inner, a + i * ai, ai, ak, b, columns, c + i * columns, columns, add);
}

inline void high_product(int64_t rows, int64_t inner, int64_t columns, const float* a, int64_t ai, int64_t ak,
                         const float* b, float* c, bool add = false) {
  int64_t j = 0;
  for (; j + 2 * LANES <= columns; j += 2 * LANES) high_columns<2>(rows, inner, columns, a, ai, ak, b + j, c + j, add);
  if (j < columns) high_columns<1>(rows, inner, columns, a, ai, ak, b + j, c + j, add);
}

// How a chunk's tokens shrink what came before, for each of the rows or of the columns of S (width numbers a token).
struct Shrink {
  const float* step;     // f_t
  const float* whole;    // product of all f_t
  const float* since;    // from the chunk's edge to the token; its own f_t is included from the left only
  const uint8_t* moved;  // (tokens, width / LANES), whether any f_t is not 1
};

enum class Along { NONE, ROWS, COLUMNS };

// The sum S before a chunk, or after it.
class OuterSums {
 public:
  OuterSums(int64_t rows, int64_t columns)
      : rows_(rows), columns_(columns), total_(rows * columns), error_(rows * columns), scaled_(CHUNK * rows) {}

  void clear() {
    std::fill(total_.begin(), total_.end(), 0.0f);
    std::fill(error_.begin(), error_.end(), 0.0f);
  }

  // One chunk, its tokens one after another: a, q (tokens, rows), b (tokens, columns). `out` (tokens, columns) is
  // added to if `add`, which nothing that shrinks may ask for.
  template <bool BACK>
  void run(int64_t tokens, const float* a, const float* b, const float* q, float* out, bool add = false,
           Along along = Along::NONE, const Shrink& shrink = {}) {
    const float* reader = q;
    if (along == Along::ROWS) {
      for (int64_t k = 0; k < tokens * rows_; k += LANES)
        store(scaled_.data() + k, load(q + k) * load(shrink.since + k));
      reader = scaled_.data();
    }
    high_product(tokens, rows_, columns_, reader, rows_, 1, total_.data(), out, add);
    if (along == Along::COLUMNS)
      for (int64_t k = 0; k < tokens * columns_; k += LANES) store(out + k, load(out + k) * load(shrink.since + k));
    const Chunk chunk{tokens, a, b, q, out, shrink};
    if (along == Along::NONE) columns<BACK, Along::NONE>(chunk);
    if (along == Along::ROWS) columns<BACK, Along::ROWS>(chunk);
    if (along == Along::COLUMNS) columns<BACK, Along::COLUMNS>(chunk);
  }

 private:
  struct Chunk {
    int64_t tokens;
    const float *a, *b, *q;
    float* out;
    Shrink shrink;
  };

  template <bool BACK, Along ALONG>
  void columns(const Chunk& chunk) {
    for (int64_t j = 0; j < columns_;) {
      const bool two = j + 2 * LANES <= columns_;
      for (int64_t i = 0; i < rows_; i += ROWS) 
        two ? chunk_part<2, BACK, ALONG>(chunk, i, j) : chunk_part<1, BACK, ALONG>(chunk, i, j);
      j += two ? 2 * LANES : LANES;
    }
  }

  template <int COLS, Along ALONG>
  static inline void shrink_by(const float* f, int64_t i, int64_t j, Vec (&sums)[ROWS][COLS]) {
#pragma GCC unroll 8
    for (int r = 0; r < ROWS; ++r)
#pragma GCC unroll 2
      for (int c = 0; c < COLS; ++c) sums[r][c] *= ALONG == Along::ROWS ? all(f[i + r]) : load(f + j + c * LANES);
  }

  template <int COLS, Along ALONG>
  inline bool moves(const Chunk& chunk, int64_t t, int64_t i, int64_t j) const {
    if (ALONG == Along::NONE) return false;
    const int64_t width = ALONG == Along::ROWS ? rows_ : columns_;
    const uint8_t* moved = chunk.shrink.moved + (t * width + (ALONG == Along::ROWS ? i : j)) / LANES;
    return moved[0] || (ALONG == Along::COLUMNS && COLS == 2 && moved[1]);
  }

  // The chunk's own part of ROWS rows and COLS vectors of columns, at last added to the sum.
  template <int COLS, bool BACK, Along ALONG>
  void chunk_part(const Chunk& chunk, int64_t i, int64_t j) {
    const int64_t width = ALONG == Along::ROWS ? rows_ : columns_;
    Vec sums[ROWS][COLS] = {};
    for (int64_t n = 0; n < chunk.tokens; ++n) {
      const int64_t t = BACK ? chunk.tokens - 1 - n : n;
      const bool moved = moves<COLS, ALONG>(chunk, t, i, j);
      if (!BACK && moved) shrink_by<COLS, ALONG>(chunk.shrink.step + t * width, i, j, sums);
      const float *a = chunk.a + t * rows_ + i, *q = chunk.q + t * rows_ + i, *b = chunk.b + t * columns_ + j;
      float* out = chunk.out + t * columns_ + j;
      Vec add[COLS], read[COLS];
#pragma GCC unroll 2
      for (int c = 0; c < COLS; ++c) {
        add[c] = load(b + c * LANES);
        read[c] = load(out + c * LANES);
      }
#pragma GCC unroll 8
      for (int r = 0; r < ROWS; ++r) {
        const Vec x = all(a[r]), y = all(q[r]);
#pragma GCC unroll 2
        for (int c = 0; c < COLS; ++c) {
          sums[r][c] += x * add[c];
          read[c] += y * sums[r][c];
        }
      }
#pragma GCC unroll 2
      for (int c = 0; c < COLS; ++c) store(out + c * LANES, read[c]);
      if (BACK && moved) shrink_by<COLS, ALONG>(chunk.shrink.step + t * width, i, j, sums);
    }
#pragma GCC unroll 8
    for (int r = 0; r < ROWS; ++r)
#pragma GCC unroll 2
      for (int c = 0; c < COLS; ++c) {
        const int64_t offset = (i + r) * columns_ + j + c * LANES;
        float *total = total_.data() + offset, *error = error_.data() + offset;
        Vec sum = load(total), rest = load(error);
        if (ALONG != Along::NONE) {
          const float* f = chunk.shrink.whole;
          const Vec factor = ALONG == Along::ROWS ? all(f[i + r]) : load(f + j + c * LANES);
          sum *= factor;
          rest *= factor;
        }
        add_exactly(sums[r][c], sum, rest);
        store(total, sum);
        store(error, rest);
      }
  }

  int64_t rows_, columns_;
  std::vector<float> total_, error_, scaled_;
};

// One head of one example of (B, H, N, width), read and written a chunk at a time.
struct Tokens : Rows {
  int64_t width;
  int64_t ahead = CHUNK;  // from a token to its like in the next chunk, which is fetched beside this one's work

  bool large;  // whether it is written past the caches

  Tokens(const at::Tensor& x, int64_t b, int64_t h)
      : Rows(x, b, h), width(x.size(3)),
        large(x.numel() >= int64_t{1} << 20 && reinterpret_cast<uintptr_t>(data) % 64 == 0 && stride % LANES == 0) {}

  Tokens backward() const {
    Tokens other = *this;
    other.ahead = -CHUNK;
    return other;
  }
  // Heads lie beside one another: rows of one are too far apart for the processor to foresee.
  void fetch(int64_t t, int64_t e) const { __builtin_prefetch(at(t + ahead) + e, 0, 2); }

  // Rows from `first` on, one after another; times a factor for each, and zeros where `hidden`.
  void take(int64_t first, int64_t count, float* out, const float* factor = nullptr,
            const bool* hidden = nullptr) const {
    for (int64_t t = 0; t < count; ++t) {
      const float* from = at(first + t);
      const Vec scale = all(factor ? factor[t] : 1.0f);
      const bool none = hidden && hidden[first + t];
      for (int64_t e = 0; e < width; e += LANES) {
        fetch(first + t, e);
        store(out + t * width + e, none ? Vec{} : load(from + e) * scale);
      }
    }
  }

  void put(int64_t first, int64_t count, const float* rows, const float* factor = nullptr) const {
    for (int64_t t = 0; t < count; ++t) {
      float* to = at(first + t);
      const Vec scale = all(factor ? factor[t] : 1.0f);
      for (int64_t e = 0; e < width; e += LANES) {
        const Vec x = load(rows + t * width + e) * scale;
        large ? stream(to + e, x) : store(to + e, x);
      }
    }
  }
};

// A mask of (rows, columns), or none.
inline std::optional<at::Tensor> mask(const std::optional<at::Tensor>& x, int64_t rows, int64_t columns) {
  return x ? std::optional(x->expand({rows, columns}).contiguous()) : x;
}

// `work(b, h, n)` for heads h to h + n of an example, n <= TOGETHER: they take turns chunk by chunk, since they lie
// beside one another in memory.
constexpr int64_t TOGETHER = 4;

template <typename Work>
void for_heads(const at::Tensor& x, const Work& work) {
  const int64_t heads = x.size(1);
  at::parallel_for(0, x.size(0) * heads, 1, [&](int64_t from, int64_t to) {
    while (from < to) {
      const int64_t h = from % heads, count = std::min({TOGETHER, to - from, heads - h});
      work(from / heads, h, count);
      from += count;
    }
    finish_streams();
  });
}

}  // namespace longhaul
