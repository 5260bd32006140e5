// Kernelized attention: models/attention/kernelized.py has the equations, and cuts the tiles of dropout's masks. Here
// the two further entries of its vectors are added to the products, so that the width is a multiple of 16.
//
//   B batch, H heads, P = B H, N query length, M key length, E head width, F width of the values

#include <torch/library.h>

#include <tuple>

#include "score_tiles.h"

namespace longhaul {
namespace {

using at::Tensor;

// -|x|^2 / 2 of each row: (B, H, N, E) -> (P, N in whole vectors), zeros at the end
std::vector<float> halves(const Tensor& x) {
  const int64_t heads = x.size(1), pairs = x.size(0) * heads, columns = whole_vectors(x.size(2));
  std::vector<float> out(pairs * columns);
  for (int64_t p = 0; p < pairs; ++p) {
    const Rows rows(x, p / heads, p % heads);
    for (int64_t i = 0; i < x.size(2); ++i) {
      Vec total{};
      for (int64_t f = 0; f < x.size(3); f += LANES) total += load(rows.at(i) + f) * load(rows.at(i) + f);
      out[p * columns + i] = sum(total) / -2.0f;
    }
  }
  return out;
}

// What the blocks of one call share.
struct Call {
  Tiling tiling;
  int64_t heads, width, value_width, columns;
  Tensor q, k, v, key_columns;
  std::vector<float> q_halves, k_halves;

  Call(const Tensor& q_, const Tensor& k_, const Tensor& v_, int64_t seed, int64_t kept, int64_t rows, int64_t together)
      : tiling{q_.size(0) * q_.size(1), q_.size(2), k_.size(2), rows, together, false, seed, kept}, heads(q_.size(1)),
        width(q_.size(3)), value_width(v_.size(3)), columns(whole_vectors(k_.size(2))), q(with_whole_rows(q_)),
        k(with_whole_rows(k_)), v(with_whole_rows(v_)), key_columns(transposed(k)), q_halves(halves(q)),
        k_halves(halves(k)) {}

  Rows rows(const Tensor& x, int64_t pair) const { return Rows(x, pair / heads, pair % heads); }

  // S of a block's queries and a panel's keys, rows of WIDTH
  void score(int64_t pair, int64_t first, int64_t count, int64_t key, int64_t padded, float* scores) const {
    const float* norms = k_halves.data() + pair * columns + key;
    const Rows queries = rows(q, pair);
    for (int64_t i = 0; i < count; ++i) {
      const float half = q_halves[pair * whole_vectors(tiling.queries) + first + i];
      for (int64_t c = 0; c < padded; c += LANES) store(scores + i * WIDTH + c, load(norms + c) + half);
    }
    product(count, width, padded, queries.at(first), queries.stride, 1,
            key_columns.const_data_ptr<float>() + pair * width * columns + key, columns, scores, WIDTH, true);
  }
};

// e^min(s, 0)
Vec weight(const float* score) {
  const Vec s = load(score);
  return exponential(s < 0.0f ? s : Vec{});
}

Tensor forward(const Tensor& q, const Tensor& k, const Tensor& v, int64_t seed, int64_t kept, int64_t rows,
               int64_t together) {
  const Call call(q, k, v, seed, kept, rows, together);
  const Tiling& tiling = call.tiling;
  const Tensor out = at::zeros({q.size(0), tiling.queries, call.heads, call.value_width}, q.options()).transpose(1, 2);
  at::parallel_for(0, tiling.units(), 1, [&](int64_t begin, int64_t end) {
    Unit unit(tiling);
    const Buffer weights(tiling.block_rows() * WIDTH), part(tiling.block_rows() * call.value_width);
    for (int64_t number = begin; number < end; ++number) {
      unit.move(number, end);
      for (int64_t pair = unit.first_pair; pair < unit.last_pair; ++pair)
        for (int64_t first = unit.first; first < unit.last; first += BLOCK) {
          const int64_t count = std::min(BLOCK, unit.last - first);
          const Rows values = call.rows(call.v, pair), to = call.rows(out, pair);
          for (int64_t j = 0; j < tiling.keys; j += PANEL) {
            const int64_t real = std::min(PANEL, tiling.keys - j), padded = whole_vectors(real);
            call.score(pair, first, count, j, padded, weights.data());
            for (int64_t i = 0; i < count; ++i) {
              float* row = weights.data() + i * WIDTH;
              if (!tiling.kept) {
                for (int64_t c = 0; c < padded; c += LANES) store(row + c, weight(row + c));
                continue;
              }
              const KeptKeys kept = unit.kept(pair, first + i);
              for (int64_t c = 0; c < padded; c += LANES) store(row + c, keep(kept(j + c), weight(row + c)));
            }
            add_product(count, real, call.value_width, weights.data(), WIDTH, 1, values.at(j), values.stride,
                        part.data(), to.at(first), to.stride);
          }
          scaled(count, call.value_width, to.at(first), to.stride, tiling.factor(), to.at(first), to.stride);
        }
    }
  });
  return out;
}

// Gradients of one block of queries, which are added to dk and dv of its pair.
class BlockBackward {
 public:
  BlockBackward(const Call& call, const Tensor& grad, const Tensor& value_columns, const Tensor& dq, const Tensor& dk,
                const Tensor& dv)
      : call_(call), grad_(grad), dq_(dq), dk_(dk), dv_(dv), value_columns_(value_columns.const_data_ptr<float>()),
        dout_(call.tiling.block_rows() * call.value_width), weights_(call.tiling.block_rows() * WIDTH),
        dscores_(call.tiling.block_rows() * WIDTH),
        part_(std::max(PANEL, BLOCK) * std::max(call.width, call.value_width)) {}

  void run(const Unit& unit, int64_t pair, int64_t first, int64_t count) {
    const Tiling& tiling = call_.tiling;
    const int64_t width = call_.width, value_width = call_.value_width;
    const Rows q = call_.rows(call_.q, pair), k = call_.rows(call_.k, pair), grad = call_.rows(grad_, pair);
    const Rows dq = call_.rows(dq_, pair), dk = call_.rows(dk_, pair), dv = call_.rows(dv_, pair);
    float *weights = weights_.data(), *ds = dscores_.data(), *part = part_.data();
    scaled(count, value_width, grad.at(first), grad.stride, tiling.factor(), dout_.data(), value_width);
    std::fill(row_sums_, row_sums_ + count, 0.0f);
    for (int64_t j = 0; j < tiling.keys; j += PANEL) {
      const int64_t real = std::min(PANEL, tiling.keys - j), padded = whole_vectors(real);
      call_.score(pair, first, count, j, padded, weights);
      product(count, value_width, padded, dout_.data(), value_width, 1,
              value_columns_ + pair * value_width * call_.columns + j, call_.columns, ds, WIDTH, false);
      std::fill(column_sums_, column_sums_ + padded, 0.0f);
      for (int64_t i = 0; i < count; ++i) {
        float *row = weights + i * WIDTH, *gradients = ds + i * WIDTH;
        const KeptKeys kept = unit.kept(pair, first + i);
        row_sums_[i] += tiling.kept ? differentiate<true>(kept, j, padded, row, gradients)
                                    : differentiate<false>(kept, j, padded, row, gradients);
      }
      add_product(real, count, value_width, weights, 1, WIDTH, dout_.data(), value_width, part, dv.at(j), dv.stride);
      add_product(real, count, width, ds, 1, WIDTH, q.at(first), q.stride, part, dk.at(j), dk.stride);
      add_product(count, real, width, ds, WIDTH, 1, k.at(j), k.stride, part, dq.at(first), dq.stride);
      // with S = -|q - k|^2 / 2, the gradient of q is the sum of dS (k - q), that of k the sum of dS (q - k)
      for (int64_t c = 0; c < real; ++c) subtract(k.at(j + c), column_sums_[c], dk.at(j + c));
    }
    for (int64_t i = 0; i < count; ++i) subtract(q.at(first + i), row_sums_[i], dq.at(first + i));
  }

 private:
  // Scores and dO V' of a query and a panel's keys become the weights after dropout and the gradients of the scores.
  // Their sum is returned, and they are added to the sums of the keys.
  template <bool DROPS>
  float differentiate(const KeptKeys& kept, int64_t key, int64_t padded, float* weights, float* ds) {
    Vec total{};
    for (int64_t c = 0; c < padded; c += LANES) {
      Vec w = weight(weights + c);
      if (DROPS) w = keep(kept(key + c), w);
      const Vec gradient = w * load(ds + c);
      total += gradient;
      store(weights + c, w);
      store(ds + c, gradient);
      store(column_sums_ + c, load(column_sums_ + c) + gradient);
    }
    return sum_in_pairs(total);
  }

  void subtract(const float* x, float factor, float* from) const {
    for (int64_t f = 0; f < call_.width; f += LANES) store(from + f, load(from + f) - load(x + f) * factor);
  }

  const Call& call_;
  const Tensor &grad_, &dq_, &dk_, &dv_;
  const float* value_columns_;
  Buffer dout_, weights_, dscores_, part_;
  float row_sums_[BLOCK], column_sums_[PANEL];
};

std::tuple<Tensor, Tensor, Tensor> backward(const Tensor& grad_, const Tensor& q, const Tensor& k, const Tensor& v,
                                            int64_t seed, int64_t kept, int64_t rows, int64_t together) {
  const Tensor grad = with_whole_rows(grad_);
  const Call call(q, k, v, seed, kept, rows, together);
  const Tiling& tiling = call.tiling;
  const Tensor value_columns = transposed(call.v);
  const Tensor dq = zeros_like_a_projection(q), dk = zeros_like_a_projection(k), dv = zeros_like_a_projection(v);
  // the units of a pair add to the same keys, one after another
  at::parallel_for(0, tiling.groups(), 1, [&](int64_t begin, int64_t end) {
    Unit unit(tiling);
    BlockBackward block(call, grad, value_columns, dq, dk, dv);
    for (int64_t number = begin * tiling.units_of_pair; number < end * tiling.units_of_pair; ++number) {
      unit.move(number, end * tiling.units_of_pair);
      for (int64_t pair = unit.first_pair; pair < unit.last_pair; ++pair)
        for (int64_t first = unit.first; first < unit.last; first += BLOCK)
          block.run(unit, pair, first, std::min(BLOCK, unit.last - first));
    }
  });
  return {dq, dk, dv};
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(longhaul, m) {
  m.def("kernelized_forward(Tensor q, Tensor k, Tensor v, int seed, int kept, int rows, int together) -> Tensor",
        &forward);
  m.def("kernelized_backward(Tensor grad, Tensor q, Tensor k, Tensor v, int seed, int kept, int rows, int together)"
        " -> (Tensor, Tensor, Tensor)",
        &backward);
}

}  // namespace longhaul
