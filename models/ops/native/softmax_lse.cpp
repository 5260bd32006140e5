// Softmax attention with dropout: models/ops/softmax_lse.py has the equations, and cuts the tiles of the masks. Queries
// are computed in blocks, their keys in panels, whatever the tiles.
//
//   B batch, H heads, P = B H, N query length, M key length, E head width, F width of the values

#include <torch/library.h>

#include <cmath>
#include <optional>
#include <tuple>

#include "score_tiles.h"

namespace longhaul {
namespace {

using at::Tensor;
constexpr int64_t CAUSAL_BLOCK = 64;  // half of the last keys of a causal block are hidden

// What the blocks of one call share.
struct Call {
  int64_t heads, width, value_width, columns, block;
  float scale;
  Tiling tiling;
  std::optional<Tensor> hidden;  // (B, H, N, M), expanded

  Call(const Tensor& q, const Tensor& k, const Tensor& v, const std::optional<Tensor>& hidden_, bool causal,
       double scale_, int64_t seed, int64_t kept, int64_t rows, int64_t together)
      : heads(q.size(1)), width(q.size(3)), value_width(v.size(3)), columns(whole_vectors(k.size(2))),
        block(causal ? CAUSAL_BLOCK : BLOCK),
        scale(static_cast<float>(scale_)),
        tiling{q.size(0) * heads, q.size(2), k.size(2), rows, together, causal, seed, kept} {
    if (hidden_)
      hidden = (tiling.keys == 1 || hidden_->stride(-1) == 1 ? *hidden_ : hidden_->contiguous())
                   .expand({q.size(0), heads, tiling.queries, tiling.keys});
  }

  // NONE at the keys from `first` on that the query does not see, and beyond the last one; `row` begins at `first`
  void hide(int64_t pair, int64_t query, int64_t first, int64_t count, float* row) const {
    const int64_t end = std::clamp<int64_t>(tiling.seen(query + 1) - first, 0, count);
    std::fill(row + end, row + count, NONE);
    if (!hidden) return;
    const bool* mask = hidden->const_data_ptr<bool>() + pair / heads * hidden->stride(0) +
                       pair % heads * hidden->stride(1) + query * hidden->stride(2) + first;
    typedef uint8_t Bytes __attribute__((vector_size(LANES)));
    int64_t j = 0;
    for (; j + LANES <= end; j += LANES) {
      Bytes hides;
      std::memcpy(&hides, mask + j, sizeof hides);
      store(row + j, __builtin_convertvector(hides, Ints) != 0 ? all(NONE) : load(row + j));
    }
    for (; j < end; ++j)
      if (mask[j]) row[j] = NONE;
  }

  Rows rows(const Tensor& x, int64_t pair) const { return Rows(x, pair / heads, pair % heads); }
};

// Outputs of one block of queries.
class BlockForward {
 public:
  BlockForward(const Call& call, const Tensor& q, const Tensor& v, const Tensor& key_columns, const Tensor& out,
               Tensor& lse)
      : call_(call), q_(q), v_(v), out_(out), key_columns_(key_columns.const_data_ptr<float>()),
        lse_(lse.mutable_data_ptr<float>()), queries_(call.tiling.block_rows() * call.width),
        weights_(call.tiling.block_rows() * WIDTH), part_(call.tiling.block_rows() * call.value_width) {}

  void run(const Unit& unit, int64_t pair, int64_t first, int64_t count) {
    const Tiling& tiling = call_.tiling;
    const int64_t width = call_.width, value_width = call_.value_width, seen = tiling.seen(first + count);
    const Rows q = call_.rows(q_, pair), v = call_.rows(v_, pair), out = call_.rows(out_, pair);
    scaled(count, width, q.at(first), q.stride, call_.scale, queries_.data(), width);
    for (int64_t i = 0; i < count; ++i) std::fill(out.at(first + i), out.at(first + i) + value_width, 0.0f);
    std::fill(highest_, highest_ + count, std::numeric_limits<float>::lowest());
    std::fill(total_, total_ + count, 0.0f);
    for (int64_t i = 0; i < count; ++i) kept_[i] = unit.kept(pair, first + i);
    for (int64_t j = 0; j < seen; j += PANEL) {
      const int64_t real = std::min(PANEL, seen - j), padded = whole_vectors(real);
      product(count, width, padded, queries_.data(), width, 1, key_columns_ + pair * width * call_.columns + j,
              call_.columns, weights_.data(), WIDTH, false);
      for (int64_t i = 0; i < count; ++i) {
        float* row = weights_.data() + i * WIDTH;
        call_.hide(pair, first + i, j, padded, row);
        weigh(i, j, padded, row, out.at(first + i));
      }
      add_product(count, real, value_width, weights_.data(), WIDTH, 1, v.at(j), v.stride, part_.data(), out.at(first),
                  out.stride);
    }
    for (int64_t i = 0; i < count; ++i) {
      const float whole = total_[i];
      scale(out.at(first + i), whole > 0.0f ? tiling.factor() / whole : 0.0f);
      lse_[pair * tiling.queries + first + i] = whole > 0.0f ? highest_[i] + std::log(whole) : 0.0f;
    }
  }

 private:
  // A query's scores of a panel become weights after dropout, relative to its largest score so far; `out` so far, too.
  void weigh(int64_t i, int64_t j, int64_t padded, float* row, float* out) {
    Vec top = all(highest_[i]), sums{};
    for (int64_t c = 0; c < padded; c += LANES) top = larger(top, load(row + c));
    const float highest = largest(top);
    if (highest > highest_[i]) {
      const float shrink = exponential(all(highest_[i] - highest))[0];
      total_[i] *= shrink;
      scale(out, shrink);
      highest_[i] = highest;
    }
    for (int64_t c = 0; c < padded; c += LANES) {
      const Vec weight = exponential(load(row + c) - highest);
      sums += weight;
      store(row + c, keep(kept_[i](j + c), weight));
    }
    total_[i] += sum_in_pairs(sums);
  }

  void scale(float* out, float factor) const { scaled(1, call_.value_width, out, 0, factor, out, 0); }

  const Call& call_;
  const Tensor &q_, &v_, &out_;
  const float* key_columns_;
  float* lse_;
  Buffer queries_, weights_, part_;
  float highest_[BLOCK], total_[BLOCK];
  KeptKeys kept_[BLOCK];
};

std::tuple<Tensor, Tensor> forward(const Tensor& q_, const Tensor& k_, const Tensor& v_,
                                   const std::optional<Tensor>& hidden, bool causal, double scale, int64_t seed,
                                   int64_t kept, int64_t rows, int64_t together) {
  const Tensor q = with_whole_rows(q_), k = with_whole_rows(k_), v = with_whole_rows(v_);
  const Call call(q, k, v, hidden, causal, scale, seed, kept, rows, together);
  const Tiling& tiling = call.tiling;
  const Tensor out =
      at::empty({q.size(0), tiling.queries, call.heads, call.value_width}, q.options()).transpose(1, 2);
  Tensor lse = at::empty({q.size(0), call.heads, tiling.queries}, q.options());
  const Tensor columns = transposed(k);
  at::parallel_for(0, tiling.units(), 1, [&](int64_t begin, int64_t end) {
    Unit unit(tiling);
    BlockForward block(call, q, v, columns, out, lse);
    for (int64_t number = begin; number < end; ++number) {
      unit.move(number, end);
      for (int64_t pair = unit.first_pair; pair < unit.last_pair; ++pair)
        for (int64_t first = unit.first; first < unit.last; first += call.block)
          block.run(unit, pair, first, std::min(call.block, unit.last - first));
    }
  });
  return {out, lse};
}

// Gradients of one block of queries, which are added to dk and dv of its pair.
class BlockBackward {
 public:
  BlockBackward(const Call& call, const Tensor& grad, const Tensor& q, const Tensor& k, const Tensor& out,
                const Tensor& lse, const Tensor& key_columns, const Tensor& value_columns, const Tensor& dq,
                const Tensor& dk, const Tensor& dv)
      : call_(call), grad_(grad), q_(q), k_(k), out_(out), dq_(dq), dk_(dk), dv_(dv),
        lse_(lse.const_data_ptr<float>()), key_columns_(key_columns.const_data_ptr<float>()),
        value_columns_(value_columns.const_data_ptr<float>()),
        queries_(call.tiling.block_rows() * call.width), dout_(call.tiling.block_rows() * call.value_width),
        weights_(call.tiling.block_rows() * WIDTH), dscores_(call.tiling.block_rows() * WIDTH),
        part_(PANEL * std::max(call.width, call.value_width)) {}

  void run(const Unit& unit, int64_t pair, int64_t first, int64_t count) {
    const Tiling& tiling = call_.tiling;
    const int64_t width = call_.width, value_width = call_.value_width, seen = tiling.seen(first + count);
    const Rows q = call_.rows(q_, pair), k = call_.rows(k_, pair), out = call_.rows(out_, pair);
    const Rows grad = call_.rows(grad_, pair), dq = call_.rows(dq_, pair), dk = call_.rows(dk_, pair);
    const Rows dv = call_.rows(dv_, pair);
    scaled(count, width, q.at(first), q.stride, call_.scale, queries_.data(), width);
    scaled(count, value_width, grad.at(first), grad.stride, tiling.factor(), dout_.data(), value_width);
    for (int64_t i = 0; i < count; ++i) {
      Vec total{};
      for (int64_t f = 0; f < value_width; f += LANES)
        total += load(grad.at(first + i) + f) * load(out.at(first + i) + f);
      inner_[i] = sum(total);
      kept_[i] = unit.kept(pair, first + i);
    }
    float *weights = weights_.data(), *ds = dscores_.data(), *part = part_.data();
    for (int64_t j = 0; j < seen; j += PANEL) {
      const int64_t real = std::min(PANEL, seen - j), padded = whole_vectors(real);
      product(count, width, padded, queries_.data(), width, 1, key_columns_ + pair * width * call_.columns + j,
              call_.columns, weights, WIDTH, false);
      product(count, value_width, padded, dout_.data(), value_width, 1,
              value_columns_ + pair * value_width * call_.columns + j, call_.columns, ds, WIDTH, false);
      for (int64_t i = 0; i < count; ++i) weigh(pair, first, i, j, padded);
      add_product(real, count, value_width, weights, 1, WIDTH, dout_.data(), value_width, part, dv.at(j), dv.stride);
      add_product(real, count, width, ds, 1, WIDTH, queries_.data(), width, part, dk.at(j), dk.stride);
      add_product(count, real, width, ds, WIDTH, 1, k.at(j), k.stride, part, dq.at(first), dq.stride);
    }
    scaled(count, width, dq.at(first), dq.stride, call_.scale, dq.at(first), dq.stride);
  }

 private:
  // Scores and dO V' of a query and a panel's keys become the weights after dropout and the gradients of the scores.
  void weigh(int64_t pair, int64_t first, int64_t i, int64_t j, int64_t padded) {
    float *weights = weights_.data() + i * WIDTH, *ds = dscores_.data() + i * WIDTH;
    call_.hide(pair, first + i, j, padded, weights);
    const float log = lse_[pair * call_.tiling.queries + first + i], inner = inner_[i];
    for (int64_t c = 0; c < padded; c += LANES) {
      const Vec weight = exponential(load(weights + c) - log);
      const Ints kept = kept_[i](j + c);
      store(weights + c, keep(kept, weight));
      store(ds + c, weight * (keep(kept, load(ds + c)) - inner));
    }
  }

  const Call& call_;
  const Tensor &grad_, &q_, &k_, &out_, &dq_, &dk_, &dv_;
  const float *lse_, *key_columns_, *value_columns_;
  Buffer queries_, dout_, weights_, dscores_, part_;
  float inner_[BLOCK];  // rowsum(dO * O)
  KeptKeys kept_[BLOCK];
};

std::tuple<Tensor, Tensor, Tensor> backward(const Tensor& grad_, const Tensor& q_, const Tensor& k_, const Tensor& v_,
                                            const Tensor& out_, const Tensor& lse_,
                                            const std::optional<Tensor>& hidden, bool causal, double scale,
                                            int64_t seed, int64_t kept, int64_t rows, int64_t together) {
  const Tensor grad = with_whole_rows(grad_), q = with_whole_rows(q_), k = with_whole_rows(k_);
  const Tensor v = with_whole_rows(v_), out = with_whole_rows(out_), lse = lse_.contiguous();
  const Call call(q, k, v, hidden, causal, scale, seed, kept, rows, together);
  const Tiling& tiling = call.tiling;
  const Tensor key_columns = transposed(k), value_columns = transposed(v);
  const Tensor dq = zeros_like_a_projection(q), dk = zeros_like_a_projection(k), dv = zeros_like_a_projection(v);
  // the units of a pair add to the same keys, one after another
  at::parallel_for(0, tiling.groups(), 1, [&](int64_t begin, int64_t end) {
    Unit unit(tiling);
    BlockBackward block(call, grad, q, k, out, lse, key_columns, value_columns, dq, dk, dv);
    for (int64_t number = begin * tiling.units_of_pair; number < end * tiling.units_of_pair; ++number) {
      unit.move(number, end * tiling.units_of_pair);
      for (int64_t pair = unit.first_pair; pair < unit.last_pair; ++pair)
        for (int64_t first = unit.first; first < unit.last; first += call.block)
          block.run(unit, pair, first, std::min(call.block, unit.last - first));
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
