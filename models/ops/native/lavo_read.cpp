// What LAVO's queries read of a memory in an orthogonal basis: `read` of models/attention/lavo.py has the equations.
//
// Queries are taken in blocks of ROWS; what a block makes stays in the first cache.
//
//   B batch, H heads, N length, E head width, R bases, W memories, each of `window` queries

#include <ATen/Parallel.h>
#include <torch/library.h>

#include <optional>
#include <tuple>
#include <vector>

#include "dropout.h"
#include "simd.h"
#include "tensors.h"

namespace longhaul {
namespace {

using at::Tensor;
constexpr int64_t ROWS = 64;

// The masks that torch's form draws for its tiles of `size` queries.
struct Masks {
  const uint8_t* bits = nullptr;
  const int64_t* first = nullptr;  // entry of each tile
  int64_t size = 1;
  float factor = 1.0f;

  Masks(const std::optional<Tensor>& bits_, const std::optional<Tensor>& first_, int64_t size_, double factor_)
      : size(size_), factor(static_cast<float>(factor_)) {
    if (!bits_) return;
    bits = bits_->const_data_ptr<uint8_t>();
    first = first_->const_data_ptr<int64_t>();
  }
};

struct Shape {
  int64_t batch, heads, length, width, bases, memories, window, unit, units;
  float scale;
  Masks masks;

  Shape(const Tensor& q, const Tensor& memory, int64_t window_, double scale_, const Masks& masks_)
      : batch(q.size(0)), heads(q.size(1)), length(q.size(2)), width(q.size(3)), bases(memory.size(3)),
        memories(memory.size(2)), window(window_), scale(static_cast<float>(scale_)), masks(masks_) {
    // what one thread takes at once: whole windows, so that no two threads add to the same memory
    unit = window * std::max<int64_t>(1, 1024 / window);
    units = (length + unit - 1) / unit;
  }

  // Dropout's factors for the R weights of a query, or ones.
  void factors(int64_t b, int64_t h, int64_t query, float* out) const {
    if (masks.bits == nullptr) return std::fill(out, out + bases, 1.0f);
    const int64_t tile = query / masks.size, start = tile * masks.size, rows = std::min(masks.size, length - start);
    const int64_t entry = masks.first[tile] + ((b * heads + h) * rows + query - start) * bases;
    for (int64_t r = 0; r < bases; r += LANES)
      store(out + r, keep(kept_lanes(masks.bits, entry + r), all(masks.factor)));
  }
};

// Weights p of one query over its memory's R entries, from u = q B' before the scale, which is multiplied in.
void weigh(const Shape& s, const float* memory, float* u, float* p) {
  Vec top = all(NONE);
  for (int64_t r = 0; r < s.bases; r += LANES) {
    const Vec scaled = load(u + r) * s.scale;
    store(u + r, scaled);
    const Vec logit = scaled * load(memory + r);
    store(p + r, logit);
    top = larger(top, logit);
  }
  const float most = largest(top);
  Vec total{};
  for (int64_t r = 0; r < s.bases; r += LANES) {
    const Vec weight = exponential(load(p + r) - most);
    store(p + r, weight);
    total += weight;
  }
  const float inverse = 1.0f / sum(total);
  for (int64_t r = 0; r < s.bases; r += LANES) store(p + r, load(p + r) * inverse);
}

void forward_unit(const Shape& s, int64_t b, int64_t h, int64_t unit, const Tensor& q, const Tensor& memory,
                  const Tensor& bases, Tensor& out) {
  const Rows queries(q, b, h), memories(memory, b, h), outputs(out, b, h);
  const float* rows = bases.const_data_ptr<float>() + h * s.bases * s.width;
  std::vector<float> columns(s.width * s.bases), u(ROWS * s.bases), p(s.bases), kept(s.bases);
  transpose(s.bases, s.width, rows, s.width, columns.data(), s.bases);
  const int64_t end = std::min((unit + 1) * s.unit, s.length);
  for (int64_t first = unit * s.unit; first < end; first += ROWS) {
    const int64_t count = std::min(ROWS, end - first);
    product(count, s.width, s.bases, queries.at(first), queries.stride, 1, columns.data(), s.bases, u.data(), s.bases,
            false);
    for (int64_t i = 0; i < count; ++i) {
      const float* m = memories.at((first + i) / s.window);
      float* y = u.data() + i * s.bases;
      weigh(s, m, y, p.data());
      s.factors(b, h, first + i, kept.data());
      for (int64_t r = 0; r < s.bases; r += LANES)
        store(y + r, load(p.data() + r) * load(kept.data() + r) * load(m + r));
    }
    product(count, s.bases, s.width, u.data(), s.bases, 1, rows, s.width, outputs.at(first), outputs.stride, false);
  }
}

void backward_unit(const Shape& s, int64_t b, int64_t h, int64_t unit, const Tensor& grad, const Tensor& q,
                   const Tensor& memory, const Tensor& bases, Tensor& dq, Tensor& dmemory, float* dbases) {
  const Rows queries(q, b, h), memories(memory, b, h), grads(grad, b, h), dqueries(dq, b, h), dmemories(dmemory, b, h);
  const float* rows = bases.const_data_ptr<float>() + h * s.bases * s.width;
  std::vector<float> columns(s.width * s.bases), u(ROWS * s.bases), p(s.bases), y(ROWS * s.bases), dy(ROWS * s.bases),
      kept(s.bases);
  transpose(s.bases, s.width, rows, s.width, columns.data(), s.bases);
  const int64_t end = std::min((unit + 1) * s.unit, s.length), n = s.bases;
  for (int64_t first = unit * s.unit; first < end; first += ROWS) {
    const int64_t count = std::min(ROWS, end - first), ldq = queries.stride, ldg = grads.stride;
    const float *block = queries.at(first), *g = grads.at(first);
    product(count, s.width, n, block, ldq, 1, columns.data(), n, u.data(), n, false);
    product(count, s.width, n, g, ldg, 1, columns.data(), n, dy.data(), n, false);
    for (int64_t i = 0; i < count; ++i) {
      const int64_t number = (first + i) / s.window;
      const float* m = memories.at(number);
      float *ui = u.data() + i * n, *yi = y.data() + i * n, *di = dy.data() + i * n;
      float* dm = dmemories.at(number);
      weigh(s, m, ui, p.data());
      s.factors(b, h, first + i, kept.data());
      Vec total{};
      for (int64_t r = 0; r < n; r += LANES) {
        const Vec part = load(di + r) * load(kept.data() + r);
        store(di + r, part);
        total += load(p.data() + r) * part * load(m + r);
      }
      const float mean = sum(total);
      for (int64_t r = 0; r < n; r += LANES) {
        const Vec weight = load(p.data() + r), entry = load(m + r), dh = weight * load(di + r);
        const Vec dl = dh * entry - weight * mean;
        store(yi + r, weight * load(kept.data() + r) * entry);
        store(dm + r, load(dm + r) + dh + load(ui + r) * dl);
        store(ui + r, dl * entry * s.scale);  // du
      }
    }
    product(count, n, s.width, u.data(), n, 1, rows, s.width, dqueries.at(first), dqueries.stride, false);
    product(n, count, s.width, y.data(), 1, n, g, ldg, dbases, s.width, true);
    product(n, count, s.width, u.data(), 1, n, block, ldq, dbases, s.width, true);
  }
}

Tensor forward(const Tensor& q_, const Tensor& memory_, const Tensor& bases_,
               const std::optional<Tensor>& bits, const std::optional<Tensor>& first, int64_t size, double factor,
               int64_t window, double scale) {
  const Tensor q = with_whole_rows(q_), memory = with_whole_rows(memory_), bases = bases_.contiguous();
  const Shape s(q, memory, window, scale, Masks(bits, first, size, factor));
  Tensor out = like_a_projection(q);
  at::parallel_for(0, s.batch * s.heads * s.units, 1, [&](int64_t from, int64_t to) {
    for (int64_t i = from; i < to; ++i) {
      const int64_t row = i / s.units;
      forward_unit(s, row / s.heads, row % s.heads, i % s.units, q, memory, bases, out);
    }
  });
  return out;
}

std::tuple<Tensor, Tensor, Tensor> backward(const Tensor& grad_, const Tensor& q_, const Tensor& memory_,
                                            const Tensor& bases_, const std::optional<Tensor>& bits,
                                            const std::optional<Tensor>& first, int64_t size, double factor,
                                            int64_t window, double scale) {
  const Tensor grad = with_whole_rows(grad_), q = with_whole_rows(q_), memory = with_whole_rows(memory_);
  const Tensor bases = bases_.contiguous();
  const Shape s(q, memory, window, scale, Masks(bits, first, size, factor));
  Tensor dq = like_a_projection(q);
  Tensor dmemory = at::zeros({s.batch, s.heads, s.memories, s.bases}, q.options());
  Tensor parts = at::zeros({s.batch, s.heads, s.units, s.bases, s.width}, q.options());
  float* part = parts.mutable_data_ptr<float>();
  at::parallel_for(0, s.batch * s.heads * s.units, 1, [&](int64_t from, int64_t to) {
    for (int64_t i = from; i < to; ++i) {
      const int64_t row = i / s.units;
      backward_unit(s, row / s.heads, row % s.heads, i % s.units, grad, q, memory, bases, dq, dmemory,
                    part + i * s.bases * s.width);
    }
  });
  return {dq, dmemory, parts.sum({0, 2})};
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(longhaul, m) {
  m.def("lavo_read_forward(Tensor q, Tensor memory, Tensor bases, Tensor? bits, Tensor? first, int size,"
        " float factor, int window, float scale) -> Tensor", &forward);
  m.def("lavo_read_backward(Tensor grad, Tensor q, Tensor memory, Tensor bases, Tensor? bits, Tensor? first,"
        " int size, float factor, int window, float scale)"
        " -> (Tensor, Tensor, Tensor)",
        &backward);
}

}  // namespace longhaul
