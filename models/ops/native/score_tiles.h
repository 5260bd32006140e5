// Scores of queries and keys with dropout: the masks of tiles whose size torch's form determines, and matrix products.
//
//   B batch, H heads, P = B H pairs, N query length, M key length, E head width
#pragma once

#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <array>
#include <memory>
#include <vector>

#include "dropout.h"
#include "simd.h"
#include "tensors.h"

namespace longhaul {

constexpr int64_t BLOCK = 256;            // most queries at once: long keys are read once for all of them
constexpr int64_t PANEL = 256;            // keys at once
constexpr int64_t WIDTH = PANEL + LANES;  // of a panel's row: rows do not share lines of the cache

inline int64_t whole_vectors(int64_t count) { return (count + LANES - 1) / LANES * LANES; }

// Memory that is written before it is read.
class Buffer {
 public:
  explicit Buffer(int64_t size) : numbers_(new float[size]) {}
  float* data() const { return numbers_.get(); }

 private:
  std::unique_ptr<float[]> numbers_;
};

// How pairs and queries are cut: a tile has `together` pairs and `rows` queries, or fewer. `kept` 0: no dropout.
struct Tiling {
  int64_t pairs, queries, keys, rows, together;
  bool causal;
  int64_t seed, kept;
  int64_t row_tiles = (queries + rows - 1) / rows;
  // a unit of work: a tile with all queries of its pairs, or tiles of one pair whose masks are drawn together
  int64_t units_of_pair = row_tiles == 1 ? 1 : (row_tiles + GENERATORS - 1) / GENERATORS;

  int64_t block_rows() const { return std::min(BLOCK, queries); }
  int64_t groups() const { return (pairs + together - 1) / together; }
  int64_t units() const { return groups() * units_of_pair; }
  // keys that some query before `end` sees
  int64_t seen(int64_t end) const { return causal ? end : keys; }
  // by which kept weights are multiplied
  float factor() const {
    return kept ? static_cast<float>(static_cast<double>(LEVELS) / static_cast<double>(kept)) : 1.0f;
  }
};

// Which keys a query keeps.
struct KeptKeys {
  const uint8_t* bits;  // null: all
  int64_t entry;        // of the first key

  Ints operator()(int64_t key) const { return kept_lanes(bits, entry + key); }
};

// The pairs and queries of a unit, and their masks.
class Unit {
 public:
  explicit Unit(const Tiling& tiling) : tiling_(tiling) { TORCH_CHECK(tiling.row_tiles == 1 || tiling.together == 1); }

  // `end`: no masks are drawn for this unit and those after it
  void move(int64_t number, int64_t end) {
    const int64_t group = number / tiling_.units_of_pair;
    first_pair = group * tiling_.together, last_pair = std::min(first_pair + tiling_.together, tiling_.pairs);
    first = 0, last = tiling_.queries;
    if (tiling_.row_tiles == 1) {
      if (number < drawn_begin_ || number >= drawn_end_) draw(number, std::min(number + GENERATORS, end));
      return;
    }
    const int64_t begin = number % tiling_.units_of_pair * GENERATORS;
    const int64_t stop = std::min(begin + GENERATORS, tiling_.row_tiles);
    first = begin * tiling_.rows, last = std::min(stop * tiling_.rows, last);
    draw(group * tiling_.row_tiles + begin, group * tiling_.row_tiles + stop);
  }

  KeptKeys kept(int64_t pair, int64_t query) const {
    if (!tiling_.kept) return {nullptr, 0};
    const int64_t tile = query / tiling_.rows, row = query % tiling_.rows;
    const int64_t number = pair / tiling_.together * tiling_.row_tiles + tile, count = rows(tile);
    const int64_t entry = (pair % tiling_.together * count + row) * tiling_.seen(tile * tiling_.rows + count);
    return {bits_[number % GENERATORS].data(), entry};
  }

  int64_t first_pair, last_pair, first, last;

 private:
  int64_t rows(int64_t tile) const { return std::min(tiling_.rows, tiling_.queries - tile * tiling_.rows); }

  void draw(int64_t begin, int64_t end) {
    drawn_begin_ = begin, drawn_end_ = end;
    if (!tiling_.kept) return;
    uint64_t seeds[GENERATORS];
    int64_t entries[GENERATORS];
    uint8_t* bits[GENERATORS];
    for (int64_t number = begin; number < end; ++number) {
      const int64_t i = number - begin, tile = number % tiling_.row_tiles, pair = number / tiling_.row_tiles;
      const int64_t pairs = std::min(tiling_.together, tiling_.pairs - pair * tiling_.together);
      seeds[i] = tiling_.seed + number;
      entries[i] = pairs * rows(tile) * tiling_.seen(tile * tiling_.rows + rows(tile));
      std::vector<uint8_t>& mask = bits_[number % GENERATORS];
      mask.resize(mask_bytes(entries[i]) + BLOCK / 8);  // a row of a causal tile is read to the end of its block
      bits[i] = mask.data();
    }
    draw_masks(end - begin, seeds, entries, tiling_.kept, bits);
  }

  const Tiling& tiling_;
  int64_t drawn_begin_ = 0, drawn_end_ = 0;
  std::array<std::vector<uint8_t>, GENERATORS> bits_;
};

// (B, H, M, E) -> (P, E, columns): M in whole vectors, zeros at the end
inline at::Tensor transposed(const at::Tensor& x) {
  const int64_t heads = x.size(1), pairs = x.size(0) * heads, keys = x.size(2), width = x.size(3);
  const int64_t columns = whole_vectors(keys);
  at::Tensor out = at::empty({pairs, width, columns}, x.options());
  float* to = out.mutable_data_ptr<float>();
  at::parallel_for(0, pairs, 1, [&](int64_t begin, int64_t end) {
    for (int64_t p = begin; p < end; ++p) {
      const Rows from(x, p / heads, p % heads);
      transpose(keys, width, from.data, from.stride, to + p * width * columns, columns);
    }
  });
  return out;
}

// Zeros (B, H, N, E) as a view of (B, N, H, E) memory.
inline at::Tensor zeros_like_a_projection(const at::Tensor& x) {
  return at::zeros({x.size(0), x.size(2), x.size(1), x.size(3)}, x.options()).transpose(1, 2);
}

// to = factor * from, (rows, columns)
inline void scaled(int64_t rows, int64_t columns, const float* from, int64_t ldf, float factor, float* to,
                   int64_t ldt) {
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < columns; j += LANES) store(to + i * ldt + j, load(from + i * ldf + j) * factor);
}

// C += A B, (rows, columns), through `part`: a sum of partial sums rounds less than one long sum.
inline void add_product(int64_t rows, int64_t inner, int64_t columns, const float* a, int64_t ai, int64_t ak,
                        const float* b, int64_t ldb, float* part, float* c, int64_t ldc) {
  product(rows, inner, columns, a, ai, ak, b, ldb, part, columns, false);
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < columns; j += LANES)
      store(c + i * ldc + j, load(c + i * ldc + j) + load(part + i * columns + j));
}

}  // namespace longhaul
