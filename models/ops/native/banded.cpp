// Softmax attention inside a band: models/ops/banded.py has the equations.
//
// Queries are taken in blocks of SIDE, keys in panels of SIDE that lie at multiples of SIDE, so that a block reads the
// same few panels as its neighbours do. Keys and values of these panels are packed once, in a ring. All scores of a
// block stay in the second cache: they are made, turned into weights and used before the next block begins.
//
//   B batch, H heads, N length, E head width, P panels that a block reads

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

// The masks that torch's form draws for its own blocks of `size` queries and `span` keys.
struct Masks {
  const uint8_t* bits = nullptr;
  const int64_t *first = nullptr, *per_head = nullptr;  // (B, G) entries of a block's first head; (G) entries per head
  int64_t blocks = 0, size = 1, span = 0, left = 0;
  float factor = 1.0f;

  Masks(const std::optional<Tensor>& bits_, const std::optional<Tensor>& first_, const std::optional<Tensor>& per_head_,
        int64_t size_, int64_t span_, int64_t left_, double factor_)
      : size(size_), span(span_), left(left_), factor(static_cast<float>(factor_)) {
    if (!bits_) return;
    bits = bits_->const_data_ptr<uint8_t>();
    first = first_->const_data_ptr<int64_t>();
    per_head = per_head_->const_data_ptr<int64_t>();
    blocks = per_head_->numel();
  }

  // of the key at `key`, which may lie a little outside of the block's keys
  int64_t entry(int64_t b, int64_t head, int64_t query, int64_t key) const {
    const int64_t block = query / size, start = block * size;
    return first[b * blocks + block] + head * per_head[block] + (query - start) * span + key - start + left;
  }
};

// What all blocks of one call share.
struct Band {
  int64_t batch, heads, length, width, left, right;
  int64_t side, reach, blocks, panels, run;
  float scale;
  std::vector<float> bias;  // (H or 1, reach + 1) between `side` hidden columns on either side, each row `stride` long
  int64_t stride;
  bool per_head;
  const bool* padding;  // (B, N), true at hidden keys
  Masks masks;

  Band(const Tensor& q, int64_t left_, int64_t right_, double scale_, const std::optional<Tensor>& table,
       const std::optional<Tensor>& hidden, const Masks& masks_)
      : batch(q.size(0)), heads(q.size(1)), length(q.size(2)), width(q.size(3)), left(left_), right(right_),
        scale(static_cast<float>(scale_)), padding(hidden ? hidden->const_data_ptr<bool>() : nullptr),
        masks(masks_) {
    reach = left + right;
    side = reach >= 4 * 32 ? 64 : 32;
    blocks = (length + side - 1) / side;
    panels = (left + side - 1) / side + 1 + (right + side - 1) / side;
    // blocks that one thread takes one after another; keys of a run reach into the next one, never past it
    run = std::max<int64_t>(16, 2 * panels);
    per_head = table.has_value();
    stride = reach + 1 + 2 * (reach + 2 * side);
    bias.assign((per_head ? heads : 1) * stride, NONE);
    for (int64_t h = 0; h < (per_head ? heads : 1); ++h) {
      float* row = bias.data() + h * stride + reach + 2 * side;
      if (per_head)
        std::memcpy(row, table->const_data_ptr<float>() + h * (reach + 1), (reach + 1) * sizeof(float));
      else
        std::fill(row, row + reach + 1, 0.0f);
    }
  }

  int64_t first_panel(int64_t block) const { return std::max<int64_t>(0, floor_div(block * side - left)); }
  int64_t last_panel(int64_t block) const {
    const int64_t query = std::min(block * side + side, length) - 1;
    return std::min(query + right, length - 1) / side;
  }
  int64_t runs() const { return (blocks + run - 1) / run; }
  int64_t rows(int64_t block) const { return std::min(side, length - block * side); }  // queries, or keys of a panel
  // bias of the key at `key` for the query at `query`; negative infinity outside of the band
  const float* bias_at(int64_t head, int64_t query, int64_t key) const {
    return bias.data() + (per_head ? head : 0) * stride + reach + 2 * side + key - query + left;
  }

 private:
  int64_t floor_div(int64_t x) const { return x >= 0 ? x / side : -((-x + side - 1) / side); }
};

// The panels that a block reads: keys and values transposed (E, side), or as they are (side, E).
class Ring {
 public:
  Ring(const Band& band, const Rows& source, bool transposed)
      : band_(band), source_(source), transposed_(transposed), next_(0), store_(band.panels * band.side * band.width) {}

  void start(int64_t panel) { next_ = panel; }
  void fill(int64_t last) {
    for (; next_ <= last; ++next_) {
      const int64_t count = band_.rows(next_);
      float* to = at(next_);
      const float* from = source_.at(next_ * band_.side);
      if (transposed_) {
        transpose(count, band_.width, from, source_.stride, to, band_.side);
      } else {
        for (int64_t i = 0; i < count; ++i) std::memcpy(to + i * band_.width, from + i * source_.stride, row_bytes());
        std::memset(to + count * band_.width, 0, (band_.side - count) * row_bytes());
      }
    }
  }
  float* at(int64_t panel) { return store_.data() + panel % band_.panels * band_.side * band_.width; }

 private:
  size_t row_bytes() const { return band_.width * sizeof(float); }
  const Band& band_;
  Rows source_;
  bool transposed_;
  int64_t next_;
  std::vector<float> store_;
};

// The queries of a block times the scale, (side, E).
void take_queries(const Band& band, const Rows& q, int64_t block, float* out) {
  const int64_t rows = band.rows(block);
  for (int64_t i = 0; i < rows; ++i) {
    const float* from = q.at(block * band.side + i);
    for (int64_t e = 0; e < band.width; e += LANES) store(out + i * band.width + e, load(from + e) * band.scale);
  }
}

// Scores of a block, (rows, panels side) from its first panel on, without the bias.
void score(const Band& band, int64_t block, const float* queries, Ring& keys, float* scores) {
  const int64_t first = band.first_panel(block), ld = band.panels * band.side;
  for (int64_t panel = first; panel <= band.last_panel(block); ++panel)
    product(band.rows(block), band.width, band.side, queries, band.width, 1, keys.at(panel), band.side,
            scores + (panel - first) * band.side, ld, false);
}

// Hide the keys of a panel that are padding, or past the last one, in the scores of one query.
void hide(const Band& band, int64_t b, int64_t panel, float* row) {
  const int64_t seen = band.rows(panel);
  for (int64_t j = seen; j < band.side; ++j) row[j] = NONE;
  if (band.padding == nullptr) return;
  const bool* hidden = band.padding + b * band.length + panel * band.side;
  for (int64_t j = 0; j < seen; ++j)
    if (hidden[j]) row[j] = NONE;
}

void forward_run(const Band& band, int64_t b, int64_t h, int64_t run, const Tensor& q, const Tensor& k, const Tensor& v,
                 Tensor& out, float* sums) {
  const int64_t side = band.side, width = band.width, ld = band.panels * side;
  const Rows query_rows(q, b, h), out_rows(out, b, h);
  Ring keys(band, Rows(k, b, h), true), values(band, Rows(v, b, h), false);
  std::vector<float> queries(side * width), scores(side * ld);
  const int64_t begin = run * band.run, end = std::min(begin + band.run, band.blocks);
  keys.start(band.first_panel(begin));
  values.start(band.first_panel(begin));
  for (int64_t block = begin; block < end; ++block) {
    const int64_t first = band.first_panel(block), last = band.last_panel(block), rows = band.rows(block);
    keys.fill(last);
    values.fill(last);
    take_queries(band, query_rows, block, queries.data());
    score(band, block, queries.data(), keys, scores.data());
    const int64_t columns = (last - first + 1) * side;
    float inverse[64];
    for (int64_t i = 0; i < rows; ++i) {
      float* row = scores.data() + i * ld;
      for (int64_t panel = first; panel <= last; ++panel) hide(band, b, panel, row + (panel - first) * side);
      const float* bias = band.bias_at(h, block * side + i, first * side);
      Vec top = all(NONE);
      for (int64_t j = 0; j < columns; j += LANES) {
        const Vec score = load(row + j) + load(bias + j);
        store(row + j, score);
        top = larger(top, score);
      }
      const float most = std::max(largest(top), std::numeric_limits<float>::lowest());  // a row may see no key
      Vec total{};
      for (int64_t j = 0; j < columns; j += LANES) {
        const Vec weight = exponential(load(row + j) - most);
        store(row + j, weight);
        total += weight;
      }
      if (band.masks.bits != nullptr) {
        const int64_t entry = band.masks.entry(b, h, block * side + i, first * side);
        for (int64_t j = 0; j < columns; j += LANES)
          store(row + j, keep(kept_lanes(band.masks.bits, entry + j), load(row + j)));
      }
      const float whole = sum(total);
      inverse[i] = whole > 0.0f ? band.masks.factor / whole : 0.0f;
      sums[block * side + i] = whole > 0.0f ? most + std::log(whole) : 0.0f;
    }
    float* to = out_rows.at(block * side);
    for (int64_t panel = first; panel <= last; ++panel)
      product(rows, side, width, scores.data() + (panel - first) * side, ld, 1, values.at(panel), width, to,
              out_rows.stride, panel > first);
    for (int64_t i = 0; i < rows; ++i)
      for (int64_t e = 0; e < width; e += LANES) {
        float* p = out_rows.at(block * side + i) + e;
        store(p, load(p) * inverse[i]);
      }
  }
}

// dK and dV are added to; two neighbouring runs may not be worked on at once, for both reach the same keys.
void backward_run(const Band& band, int64_t b, int64_t h, int64_t run, const Tensor& grad, const Tensor& q,
                  const Tensor& k, const Tensor& v, const Tensor& out, const float* sums, Tensor& dq, Tensor& dk,
                  Tensor& dv, float* dbias) {
  const int64_t side = band.side, width = band.width, ld = band.panels * side;
  const Rows query_rows(q, b, h), grad_rows(grad, b, h), out_rows(out, b, h);
  const Rows dq_rows(dq, b, h), dk_rows(dk, b, h), dv_rows(dv, b, h);
  Ring keys(band, Rows(k, b, h), true), raw_keys(band, Rows(k, b, h), false), values(band, Rows(v, b, h), true);
  std::vector<float> queries(side * width), dout(side * width), scores(side * ld), dscores(side * ld);
  const int64_t begin = run * band.run, end = std::min(begin + band.run, band.blocks);
  for (Ring* ring : {&keys, &raw_keys, &values}) ring->start(band.first_panel(begin));
  for (int64_t block = begin; block < end; ++block) {
    const int64_t first = band.first_panel(block), last = band.last_panel(block), rows = band.rows(block);
    for (Ring* ring : {&keys, &raw_keys, &values}) ring->fill(last);
    take_queries(band, query_rows, block, queries.data());
    score(band, block, queries.data(), keys, scores.data());
    float inner[64];  // rowsum(dO * O)
    for (int64_t i = 0; i < rows; ++i) {
      const float *g = grad_rows.at(block * side + i), *y = out_rows.at(block * side + i);
      Vec total{};
      for (int64_t e = 0; e < width; e += LANES) {
        store(dout.data() + i * width + e, load(g + e) * band.masks.factor);
        total += load(g + e) * load(y + e);
      }
      inner[i] = sum(total);
    }
    float* to = dq_rows.at(block * side);
    for (int64_t panel = first; panel <= last; ++panel) {
      const int64_t seen = band.rows(panel);
      float *p = scores.data() + (panel - first) * side, *ds = dscores.data() + (panel - first) * side;
      product(rows, width, side, dout.data(), width, 1, values.at(panel), side, ds, ld, false);
      for (int64_t i = 0; i < rows; ++i) {
        float *weights = p + i * ld, *row = ds + i * ld;
        const float total = sums[block * side + i];
        const float* bias = band.bias_at(h, block * side + i, panel * side);
        hide(band, b, panel, weights);
        const bool drops = band.masks.bits != nullptr;
        const int64_t entry = drops ? band.masks.entry(b, h, block * side + i, panel * side) : 0;
        for (int64_t j = 0; j < side; j += LANES) {
          const Vec weight = exponential(load(weights + j) + load(bias + j) - total);
          const Ints kept = drops ? kept_lanes(band.masks.bits, entry + j) : ~Ints{};
          store(weights + j, keep(kept, weight));
          store(row + j, weight * (keep(kept, load(row + j)) - inner[i]));
        }
        if (dbias != nullptr) {
          float* at = dbias + (panel * side - block * side - i);
          for (int64_t j = 0; j < side; j += LANES) store(at + j, load(at + j) + load(row + j));
        }
      }
      product(seen, rows, width, p, 1, ld, dout.data(), width, dv_rows.at(panel * side), dv_rows.stride, true);
      product(seen, rows, width, ds, 1, ld, queries.data(), width, dk_rows.at(panel * side), dk_rows.stride, true);
      product(rows, side, width, ds, ld, 1, raw_keys.at(panel), width, to, dq_rows.stride, panel > first);
    }
    for (int64_t i = 0; i < rows; ++i)
      for (int64_t e = 0; e < width; e += LANES) {
        float* at = dq_rows.at(block * side + i) + e;
        store(at, load(at) * band.scale);
      }
  }
}

std::tuple<Tensor, Tensor> forward(const Tensor& q_, const Tensor& k_, const Tensor& v_,
                                   const std::optional<Tensor>& bias_, const std::optional<Tensor>& padding_,
                                   const std::optional<Tensor>& bits, const std::optional<Tensor>& first,
                                   const std::optional<Tensor>& per_head, int64_t size, int64_t span, double factor,
                                   int64_t left, int64_t right, double scale) {
  const Tensor q = with_whole_rows(q_), k = with_whole_rows(k_), v = with_whole_rows(v_);
  const auto bias = contiguous(bias_), padding = contiguous(padding_);
  const Band band(q, left, right, scale, bias, padding, Masks(bits, first, per_head, size, span, left, factor));
  Tensor out = like_a_projection(q), sums = at::empty({band.batch, band.heads, band.length}, q.options());
  float* logs = sums.mutable_data_ptr<float>();
  at::parallel_for(0, band.batch * band.heads * band.runs(), 1, [&](int64_t from, int64_t to) {
    for (int64_t unit = from; unit < to; ++unit) {
      const int64_t head = unit / band.runs();
      forward_run(band, head / band.heads, head % band.heads, unit % band.runs(), q, k, v, out,
                  logs + head * band.length);
    }
  });
  return {out, sums};
}

std::tuple<Tensor, Tensor, Tensor, Tensor> backward(const Tensor& grad_, const Tensor& q_, const Tensor& k_,
                                                    const Tensor& v_, const std::optional<Tensor>& bias_,
                                                    const std::optional<Tensor>& padding_, const Tensor& out,
                                                    const Tensor& sums, const std::optional<Tensor>& bits,
                                                    const std::optional<Tensor>& first,
                                                    const std::optional<Tensor>& per_head, int64_t size, int64_t span,
                                                    double factor, int64_t left, int64_t right, double scale) {
  const Tensor grad = with_whole_rows(grad_), q = with_whole_rows(q_), k = with_whole_rows(k_), v = with_whole_rows(v_);
  const auto bias = contiguous(bias_), padding = contiguous(padding_);
  const Band band(q, left, right, scale, bias, padding, Masks(bits, first, per_head, size, span, left, factor));
  Tensor dq = like_a_projection(q), dk = like_a_projection(q).zero_(), dv = like_a_projection(q).zero_();
  const int64_t runs = band.runs(), heads = band.batch * band.heads;
  Tensor parts = at::zeros({bias ? heads * runs : 0, band.stride}, q.options());
  const float* logs = sums.const_data_ptr<float>();
  float* part = parts.mutable_data_ptr<float>();
  const int64_t middle = band.reach + 2 * band.side + left;  // of the key at the query's own place
  for (int64_t odd = 0; odd < 2; ++odd) {
    const int64_t count = (runs + 1 - odd) / 2;
    at::parallel_for(0, heads * count, 1, [&](int64_t from, int64_t to) {
      for (int64_t unit = from; unit < to; ++unit) {
        const int64_t head = unit / count, run = 2 * (unit % count) + odd;
        backward_run(band, head / band.heads, head % band.heads, run, grad, q, k, v, out, logs + head * band.length,
                     dq, dk, dv, bias ? part + (head * runs + run) * band.stride + middle : nullptr);
      }
    });
  }
  Tensor dbias;
  if (bias)
    dbias = parts.view({band.batch, band.heads, runs, band.stride})
                .sum({0, 2})
                .slice(1, band.reach + 2 * band.side, 2 * band.reach + 2 * band.side + 1)
                .contiguous();
  return {dq, dk, dv, dbias};
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(longhaul, m) {
  m.def("banded_forward(Tensor q, Tensor k, Tensor v, Tensor? bias, Tensor? padding, Tensor? bits,"
        " Tensor? first, Tensor? per_head, int size, int span, float factor, int left, int right, float scale)"
        " -> (Tensor, Tensor)",
        &forward);
  m.def("banded_backward(Tensor grad, Tensor q, Tensor k, Tensor v, Tensor? bias, Tensor? padding, Tensor out,"
        " Tensor sums, Tensor? bits, Tensor? first, Tensor? per_head, int size, int span, float factor, int left,"
        " int right, float scale) -> (Tensor, Tensor, Tensor, Tensor)",
        &backward);
}

}  // namespace longhaul
