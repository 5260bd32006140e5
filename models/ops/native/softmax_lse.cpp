// Softmax attention with dropout: models/ops/softmax_lse.py has the equations, and cuts the same tiles with the same
// masks. Forward takes a few queries and all of their keys at once, backward panels of keys.
//
//   B batch, H heads, P = B H, N query length, M key length, E head width, F width of the values

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros_like.h>
#include <torch/library.h>

#include <array>
#include <cmath>
#include <optional>
#include <tuple>
#include <vector>

#include "dropout.h"
#include "simd.h"

namespace longhaul {
namespace {

using at::Tensor;
constexpr int64_t BLOCK = 64;             // most queries at once
constexpr int64_t SCORES = 1 << 16;       // of a block in forward: a part of the second cache
constexpr int64_t PANEL = 256;            // keys at once
constexpr int64_t WIDTH = PANEL + LANES;  // of a panel's row: rows do not share lines of the cache

int64_t whole_vectors(int64_t count) { return (count + LANES - 1) / LANES * LANES; }

// What the tiles of one call share.
struct Call {
  int64_t heads, pairs, queries, keys, width, value_width, columns, rows, together, row_tiles;
  bool causal;
  float scale, factor;
  int64_t seed, kept;
  std::optional<Tensor> hidden;  // (B, H, N, M), expanded

  Call(const Tensor& q, const Tensor& k, const Tensor& v, const std::optional<Tensor>& hidden_, bool causal_,
       double scale_, int64_t seed_, int64_t kept_, int64_t rows_, int64_t together_)
      : heads(q.size(1)), pairs(q.size(0) * heads), queries(q.size(2)), keys(k.size(2)), width(q.size(3)),
        value_width(v.size(3)), columns(whole_vectors(keys)), rows(rows_), together(together_),
        row_tiles((queries + rows - 1) / rows), causal(causal_), scale(static_cast<float>(scale_)),
        factor(static_cast<float>(static_cast<double>(LEVELS) / static_cast<double>(kept_))), seed(seed_),
        kept(kept_) {
    if (hidden_)
      hidden = (keys == 1 || hidden_->stride(-1) == 1 ? *hidden_ : hidden_->contiguous())
                   .expand({q.size(0), heads, queries, keys});
  }

  int64_t groups() const { return (pairs + together - 1) / together; }
  // keys that some query before `end` sees
  int64_t seen(int64_t end) const { return causal ? end : keys; }

  // NONE at the keys from `first` on that the query does not see, and beyond the last one; `row` begins at `first`
  void hide(int64_t pair, int64_t query, int64_t first, int64_t count, float* row) const {
    const int64_t end = std::clamp<int64_t>(seen(query + 1) - first, 0, count);
    std::fill(row + end, row + count, NONE);
    if (!hidden) return;
    const bool* mask = hidden->const_data_ptr<bool>() + pair / heads * hidden->stride(0) +
                       pair % heads * hidden->stride(1) + query * hidden->stride(2) + first;
    for (int64_t j = 0; j < end; ++j)
      if (mask[j]) row[j] = NONE;
  }
};

// Some queries of some pairs, and their mask. The masks of the tiles that follow are drawn with it.
class Tile {
 public:
  explicit Tile(const Call& call) : call_(call) {}

  // `end`: masks are drawn for the tiles before it alone
  void move(int64_t number, int64_t end) {
    if (number < drawn_begin_ || number >= drawn_end_) draw(number, std::min(number + GENERATORS, end));
    place(number);
    current_ = bits_[number % GENERATORS].data();
  }

  const uint8_t* bits() const { return current_; }
  int64_t entry(int64_t pair, int64_t query) const {
    return ((pair - first_pair) * (last - first) + query - first) * seen_;
  }

  int64_t first_pair, last_pair, first, last;

 private:
  void place(int64_t number) {
    first_pair = number / call_.row_tiles * call_.together;
    last_pair = std::min(first_pair + call_.together, call_.pairs);
    first = number % call_.row_tiles * call_.rows;
    last = std::min(first + call_.rows, call_.queries);
    seen_ = call_.seen(last);
  }

  void draw(int64_t begin, int64_t end) {
    uint64_t seeds[GENERATORS];
    int64_t entries[GENERATORS];
    uint8_t* bits[GENERATORS];
    for (int64_t number = begin; number < end; ++number) {
      const int64_t i = number - begin;
      place(number);
      seeds[i] = call_.seed + number;
      entries[i] = (last_pair - first_pair) * (last - first) * seen_;
      std::vector<uint8_t>& mask = bits_[number % GENERATORS];
      mask.resize(mask_bytes(entries[i]));
      bits[i] = mask.data();
    }
    draw_masks(end - begin, seeds, entries, call_.kept, bits);
    drawn_begin_ = begin, drawn_end_ = end;
  }

  const Call& call_;
  int64_t seen_ = 0, drawn_begin_ = 0, drawn_end_ = 0;
  const uint8_t* current_ = nullptr;
  std::array<std::vector<uint8_t>, GENERATORS> bits_;
};

// (P, M, E) -> (P, E, columns)
Tensor transposed(const Tensor& x, const Call& call) {
  const int64_t width = x.size(3);
  Tensor out = at::empty({call.pairs, width, call.columns}, x.options());
  const float* from = x.const_data_ptr<float>();
  float* to = out.mutable_data_ptr<float>();
  at::parallel_for(0, call.pairs, 1, [&](int64_t begin, int64_t end) {
    for (int64_t p = begin; p < end; ++p)
      transpose(call.keys, width, from + p * call.keys * width, width, to + p * width * call.columns, call.columns);
  });
  return out;
}

void scaled(int64_t count, const float* from, float factor, float* to) {
  for (int64_t i = 0; i < count; i += LANES) store(to + i, load(from + i) * factor);
}

// total += A B, (rows, columns) without gaps, through `part`: a sum of partial sums rounds less than one long sum.
void add_product(int64_t rows, int64_t inner, int64_t columns, const float* a, int64_t ai, int64_t ak, const float* b,
                 float* part, float* total) {
  product(rows, inner, columns, a, ai, ak, b, columns, part, columns, false);
  for (int64_t i = 0; i < rows * columns; i += LANES) store(total + i, load(total + i) + load(part + i));
}

std::tuple<Tensor, Tensor> forward(const Tensor& q_, const Tensor& k_, const Tensor& v_,
                                   const std::optional<Tensor>& hidden, bool causal, double scale, int64_t seed,
                                   int64_t kept, int64_t rows, int64_t together) {
  const Tensor q = q_.contiguous(), k = k_.contiguous(), v = v_.contiguous();
  const Call call(q, k, v, hidden, causal, scale, seed, kept, rows, together);
  const int64_t width = call.width, value_width = call.value_width;
  Tensor out = at::empty({q.size(0), call.heads, call.queries, value_width}, q.options());
  Tensor lse = at::empty({q.size(0), call.heads, call.queries}, q.options());
  const Tensor columns = transposed(k, call);
  const float *q_rows = q.const_data_ptr<float>(), *key_columns = columns.const_data_ptr<float>();
  const float* value_rows = v.const_data_ptr<float>();
  float *out_rows = out.mutable_data_ptr<float>(), *logs = lse.mutable_data_ptr<float>();
  const int64_t most = std::clamp<int64_t>(SCORES / call.columns, 8, BLOCK), ld = call.columns + LANES;
  at::parallel_for(0, call.groups() * call.row_tiles, 1, [&](int64_t begin, int64_t end) {
    Tile tile(call);
    std::vector<float> queries(most * width), scores(most * ld), part(most * value_width);
    float inverse[BLOCK];
    for (int64_t number = begin; number < end; ++number) {
      tile.move(number, end);
      for (int64_t pair = tile.first_pair; pair < tile.last_pair; ++pair)
        for (int64_t first = tile.first; first < tile.last; first += most) {
          const int64_t count = std::min(most, tile.last - first), seen = call.seen(first + count);
          const int64_t start = pair * call.queries + first, padded = whole_vectors(seen);
          scaled(count * width, q_rows + start * width, call.scale, queries.data());
          product(count, width, padded, queries.data(), width, 1, key_columns + pair * width * call.columns,
                  call.columns, scores.data(), ld, false);
          for (int64_t i = 0; i < count; ++i) {
            float* row = scores.data() + i * ld;
            call.hide(pair, first + i, 0, padded, row);
            Vec top = all(NONE), total{};
            for (int64_t j = 0; j < padded; j += LANES) top = larger(top, load(row + j));
            const float highest = std::max(largest(top), std::numeric_limits<float>::lowest());
            const int64_t entry = tile.entry(pair, first + i);
            for (int64_t j = 0; j < padded; j += LANES) {
              const Vec weight = exponential(load(row + j) - highest);
              total += weight;
              store(row + j, keep(kept_lanes(tile.bits(), entry + j), weight));
            }
            const float whole = sum(total);
            inverse[i] = whole > 0.0f ? call.factor / whole : 0.0f;
            logs[start + i] = whole > 0.0f ? highest + std::log(whole) : 0.0f;
          }
          float* to = out_rows + start * value_width;
          std::fill(to, to + count * value_width, 0.0f);
          for (int64_t j = 0; j < seen; j += PANEL)
            add_product(count, std::min(PANEL, seen - j), value_width, scores.data() + j, ld, 1,
                        value_rows + (pair * call.keys + j) * value_width, part.data(), to);
          for (int64_t i = 0; i < count; ++i, to += value_width) scaled(value_width, to, inverse[i], to);
        }
    }
  });
  return {out, lse};
}

// Gradients of one block of queries, which are added to dk and dv of its pair.
class BlockBackward {
 public:
  BlockBackward(const Call& call, const Tensor& grad, const Tensor& q, const Tensor& k, const Tensor& out,
                const Tensor& lse, const Tensor& key_columns, const Tensor& value_columns, Tensor& dq, Tensor& dk,
                Tensor& dv)
      : call_(call), grad_(grad.const_data_ptr<float>()), q_(q.const_data_ptr<float>()),
        k_(k.const_data_ptr<float>()), out_(out.const_data_ptr<float>()), lse_(lse.const_data_ptr<float>()),
        key_columns_(key_columns.const_data_ptr<float>()), value_columns_(value_columns.const_data_ptr<float>()),
        dq_(dq.mutable_data_ptr<float>()), dk_(dk.mutable_data_ptr<float>()), dv_(dv.mutable_data_ptr<float>()),
        queries_(BLOCK * call.width), dout_(BLOCK * call.value_width), weights_(BLOCK * WIDTH),
        dscores_(BLOCK * WIDTH), part_(PANEL * std::max(call.width, call.value_width)) {}

  void run(const Tile& tile, int64_t pair, int64_t first, int64_t count) {
    const int64_t width = call_.width, value_width = call_.value_width, seen = call_.seen(first + count);
    const int64_t start = pair * call_.queries + first, key = pair * call_.keys;
    scaled(count * width, q_ + start * width, call_.scale, queries_.data());
    scaled(count * value_width, grad_ + start * value_width, call_.factor, dout_.data());
    for (int64_t i = 0; i < count; ++i) {
      Vec total{};
      for (int64_t f = (start + i) * value_width; f < (start + i + 1) * value_width; f += LANES)
        total += load(grad_ + f) * load(out_ + f);
      inner_[i] = sum(total);
    }
    float *weights = weights_.data(), *ds = dscores_.data(), *dq = dq_ + start * width;
    for (int64_t j = 0; j < seen; j += PANEL) {
      const int64_t real = std::min(PANEL, seen - j), padded = whole_vectors(real);
      product(count, width, padded, queries_.data(), width, 1, key_columns_ + pair * width * call_.columns + j,
              call_.columns, weights, WIDTH, false);
      product(count, value_width, padded, dout_.data(), value_width, 1,
              value_columns_ + pair * value_width * call_.columns + j, call_.columns, ds, WIDTH, false);
      for (int64_t i = 0; i < count; ++i) weigh(tile, pair, first, i, j, padded);
      add_product(real, count, value_width, weights, 1, WIDTH, dout_.data(), part_.data(),
                  dv_ + (key + j) * value_width);
      add_product(real, count, width, ds, 1, WIDTH, queries_.data(), part_.data(), dk_ + (key + j) * width);
      add_product(count, real, width, ds, WIDTH, 1, k_ + (key + j) * width, part_.data(), dq);
    }
    scaled(count * width, dq, call_.scale, dq);
  }

 private:
  // Scores and dO V' of a query and a panel's keys become the weights after dropout and the gradients of the scores.
  void weigh(const Tile& tile, int64_t pair, int64_t first, int64_t i, int64_t j, int64_t padded) {
    float *weights = weights_.data() + i * WIDTH, *ds = dscores_.data() + i * WIDTH;
    call_.hide(pair, first + i, j, padded, weights);
    const float log = lse_[pair * call_.queries + first + i], inner = inner_[i];
    const int64_t entry = tile.entry(pair, first + i) + j;
    for (int64_t c = 0; c < padded; c += LANES) {
      const Vec weight = exponential(load(weights + c) - log);
      const Ints kept = kept_lanes(tile.bits(), entry + c);
      store(weights + c, keep(kept, weight));
      store(ds + c, weight * (keep(kept, load(ds + c)) - inner));
    }
  }

  const Call& call_;
  const float *grad_, *q_, *k_, *out_, *lse_, *key_columns_, *value_columns_;
  float *dq_, *dk_, *dv_;
  std::vector<float> queries_, dout_, weights_, dscores_, part_;
  float inner_[BLOCK];  // rowsum(dO * O)
};

std::tuple<Tensor, Tensor, Tensor> backward(const Tensor& grad_, const Tensor& q_, const Tensor& k_, const Tensor& v_,
                                            const Tensor& out_, const Tensor& lse_,
                                            const std::optional<Tensor>& hidden, bool causal, double scale,
                                            int64_t seed, int64_t kept, int64_t rows, int64_t together) {
  const Tensor grad = grad_.contiguous(), q = q_.contiguous(), k = k_.contiguous(), v = v_.contiguous();
  const Tensor out = out_.contiguous(), lse = lse_.contiguous();
  const Call call(q, k, v, hidden, causal, scale, seed, kept, rows, together);
  const Tensor key_columns = transposed(k, call), value_columns = transposed(v, call);
  Tensor dq = at::zeros_like(q), dk = at::zeros_like(k), dv = at::zeros_like(v);
  // a group's tiles add to the same keys, one after another
  at::parallel_for(0, call.groups(), 1, [&](int64_t begin, int64_t end) {
    Tile tile(call);
    BlockBackward block(call, grad, q, k, out, lse, key_columns, value_columns, dq, dk, dv);
    for (int64_t number = begin * call.row_tiles; number < end * call.row_tiles; ++number) {
      tile.move(number, end * call.row_tiles);
      for (int64_t pair = tile.first_pair; pair < tile.last_pair; ++pair)
        for (int64_t first = tile.first; first < tile.last; first += BLOCK)
          block.run(tile, pair, first, std::min(BLOCK, tile.last - first));
    }
  });
  return {dq, dk, dv};
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(longhaul, m) {
  m.def("softmax_lse_forward(Tensor q, Tensor k, Tensor v, Tensor? hidden, bool causal, float scale, int seed,"
        " int kept, int rows, int together) -> (Tensor, Tensor)",
        &forward);
  m.def("softmax_lse_backward(Tensor grad, Tensor q, Tensor k, Tensor v, Tensor out, Tensor lse, Tensor? hidden,"
        " bool causal, float scale, int seed, int kept, int rows, int together) -> (Tensor, Tensor, Tensor)",
        &backward);
}

}  // namespace longhaul
